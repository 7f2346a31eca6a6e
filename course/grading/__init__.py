"""`python -m course grade`: from a folder of submissions to a gradebook.

entries finds the submissions and files their notebooks, recognise says which chapters they answer,
submission grades one of them (in a process of its own: court), pool keeps several at work, and
record, tables, feedback, formats and summary write what came out.
"""
