# Each verb is one line that calls `python -m course ...`; where there is no make, type that.
# Works with GNU make 3.81 (macOS) and newer.

# The course's own Python if it is there and runs, else the first new enough one, else any, which
# then says what is missing. `make PYTHON=/path/to/python3.12 test` chooses another.
GOOD := -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null </dev/null
FIND  = for p in .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11 python; do \
          if $$p $(GOOD); then echo $$p; exit; fi; done; \
        for p in python3 python; do if command -v $$p >/dev/null; then echo $$p; exit; fi; done
ifndef PYTHON
PYTHON = $(or $(shell $(FIND)),$(error No Python on your PATH: install Python 3.12 from your \
package manager or https://www.python.org/downloads/, then type the same command again))
endif
COURSE = @$(PYTHON) -m course

# What the reader may give. The first two reach the shell through the environment, so that quotes
# in them survive.
PROMPT = Once upon a time
JUPYTER_ARGS =
export PROMPT JUPYTER_ARGS
CH =
EX =
NAME =
ARGS =

.DEFAULT_GOAL := help
.PHONY: help start test check hint solution progress doctor model generate batch compare serve capstone drill load report gate diagnose quantize grade notebooks reference bench integration mutants lint clean

help:
	@echo 'AI Engineering from Scratch. Type make and one of:'
	@echo
	@echo '  make start CH=4            open chapter 4 in JupyterLab, and set everything up the first time'
	@echo '                             (no CH: the first chapter that is not finished)'
	@echo '  make check EX=4.2          judge your exercise 4.2 (no EX: every exercise you have begun)'
	@echo '  make hint EX=4.2           the next hint for exercise 4.2'
	@echo '  make solution EX=4.2       show a solution of exercise 4.2 (asks once)'
	@echo '  make progress              chapters, exercises, points, last verdicts'
	@echo '  make generate PROMPT="Hi"  let the model write (ARGS="--max-tokens 32 --chat")'
	@echo '  make batch FILE=in.jsonl   run a file of prompts, many at once, results as they finish'
	@echo '  make compare               the same questions at several settings, to be rated blind'
	@echo '  make serve                 the model as a service, with a chat page (ARGS="--port 8001")'
	@echo '  make capstone              your own engine, chapters 02 to 08, tested end to end'
	@echo '  make drill NAME=monday     a service with a fault in it: find the cause (no NAME: all drills)'
	@echo '  make load                  requests at a rate against a running server (ARGS="--rates 0.5,1,2")'
	@echo '  make report LOG=logs       the periodic lines of a service as plots'
	@echo '  make gate A=old.json B=new.json   may the upgrade go out? (two files of load --out)'
	@echo '  make diagnose A=a.txt B=b.txt S=30  what is wrong, from two readings of /metrics S seconds apart'
	@echo '  make model                 fetch and convert the model'
	@echo '  make quantize              put the model into fewer bits (ARGS="--bits 4 --group-size 32")'
	@echo '  make grade SUBMISSIONS=dir OUT=grades   grade a class; see INSTRUCTORS.md (ARGS="--jobs 2")'
	@echo '  make doctor                what this machine has, and how to mend what is missing'
	@echo
	@echo '  make test                  set up, then run all tests of the project'
	@echo '  make notebooks             build notebooks/ from chapters/ and solutions/'
	@echo '  make reference             remake the expected values of the tests (authors)'
	@echo '  make bench                 this engine beside its peers (authors; ARGS=load for one)'
	@echo '  make integration           the server beside real clients, Prometheus and a browser (authors)'
	@echo '  make mutants               do the grading cases find small faults in our answers? (authors)'
	@echo '  make lint                  rules and format (authors; ARGS=--fix rewrites)'
	@echo '  make clean                 remove .venv and caches; work/ and models/ stay'
	@echo
	@echo 'JUPYTER_ARGS="--no-browser --port 8899" goes to JupyterLab. Without make: python -m course VERB'

start:     ; $(COURSE) start $(CH) --jupyter-args="$$JUPYTER_ARGS" $(ARGS)
test:      ; $(COURSE) test $(ARGS)
check:     ; $(COURSE) check $(EX) $(ARGS)
hint:      ; $(COURSE) hint $(EX) $(ARGS)
solution:  ; $(COURSE) solution $(EX) $(ARGS)
progress:  ; $(COURSE) progress $(ARGS)
doctor:    ; $(COURSE) doctor $(ARGS)
model:     ; $(COURSE) model $(ARGS)
generate:  ; $(COURSE) generate "$$PROMPT" $(ARGS)
batch:     ; $(COURSE) batch "$(FILE)" $(ARGS)
compare:   ; $(COURSE) compare $(ARGS)
serve:     ; $(COURSE) serve $(ARGS)
capstone:  ; $(COURSE) capstone $(ARGS)
drill:     ; $(COURSE) drill $(NAME) $(ARGS)
load:      ; $(COURSE) load $(ARGS)
report:    ; $(COURSE) report "$(LOG)" $(ARGS)
gate:      ; $(COURSE) gate "$(A)" "$(B)" $(ARGS)
diagnose:  ; $(COURSE) diagnose "$(A)" "$(B)" --seconds "$(S)" $(ARGS)
quantize:  ; $(COURSE) quantize $(ARGS)
grade:     ; $(COURSE) grade "$(SUBMISSIONS)" "$(OUT)" $(ARGS)
notebooks: ; $(COURSE) notebooks $(ARGS)
reference: ; $(COURSE) reference $(ARGS)
bench:     ; $(COURSE) bench $(ARGS)
integration: ; $(COURSE) integration $(ARGS)
mutants:   ; $(COURSE) mutants $(ARGS)
lint:      ; $(COURSE) lint $(ARGS)
clean:     ; $(COURSE) clean
