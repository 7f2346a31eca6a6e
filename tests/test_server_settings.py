"""The settings of the service: where they come from, which goes before which, and their table."""

import re
from dataclasses import fields

import pytest

from course import serve
from course.paths import ROOT
from solutions.settings import SettingError, Settings, load_settings, settings_table

README = ROOT / "chapters" / "07_server" / "README.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no llm.toml lies


def test_command_line_before_environment_before_file_before_default(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('port = 1\nhost = "1.1.1.1"\nmax_running = 3\n', encoding="utf-8")
    environment = {"LLM_CONFIG": str(path), "LLM_PORT": "2", "LLM_HOST": "2.2.2.2", "OTHER": "x"}
    found = load_settings(environment, {"port": "3", "host": None})
    assert [found.port, found.host, found.max_running] == [3, "2.2.2.2", 3]
    assert found.max_waiting == Settings().max_waiting
    assert found.changed() == {"port": 3, "host": "2.2.2.2", "max_running": 3}


def test_a_file_in_this_folder_is_read(tmp_path):
    assert load_settings({}) == Settings()
    (tmp_path / "llm.toml").write_text("patience = 2\n", encoding="utf-8")
    assert load_settings({}).patience == 2.0


def test_values_take_the_type_of_their_setting():
    found = load_settings(
        {"LLM_PATIENCE": "2.5", "LLM_CORS_ORIGINS": "https://a, https://b", "LLM_MODEL_NAME": "7"}
    )
    assert [found.patience, found.model_name] == [2.5, "7"]
    assert found.cors_origins == ("https://a", "https://b")
    assert type(load_settings({"LLM_PATIENCE": "2"}).patience) is float


@pytest.mark.parametrize(
    ("environment", "text", "said"),
    [
        ({"LLM_PORT": "1.5"}, "", "LLM_PORT: port must be a whole number from 0 to 65535"),
        ({"LLM_PORT": ""}, "", "LLM_PORT: port must be a whole number"),
        ({"LLM_MAX_RUNNING": "0"}, "", "max_running must be a whole number from 1 to 1024; got 0"),
        ({"LLM_QUEUE_TIMEOUT": "nan"}, "", "queue_timeout must be a number from"),
        ({"LLM_QUEUE_TIMEOUT": "inf"}, "", "queue_timeout must be a number from"),
        ({"LLM_NOTHING": "1"}, "", "LLM_NOTHING has an unknown setting 'nothing'"),
        ({}, 'port = "80"', None),
        ({}, "port = true", "port must be a whole number"),
        ({}, "host = 7", "host must be a text"),
        ({}, 'host = ""', "host must be an address"),
        ({}, 'api_key = "a\\nb"', "api_key must be printable"),
        ({}, 'api_key = " a"', "api_key must be printable, without blanks"),
        ({"LLM_MAX_WAITING": "8001"}, "", "max_waiting must be a whole number from 1 to 8000"),
        ({}, "cors_origins = [1]", "cors_origins must be texts"),
        ({}, "nothing = 1", "unknown setting 'nothing'"),
        ({}, "port = ", "is not TOML"),
        ({"LLM_MAX_RUNNING": "200"}, "", "step_tokens (128) must be at least max_running (200)"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, environment, text, said):
    path = tmp_path / "given.toml"
    path.write_text(text, encoding="utf-8")
    given = environment | {"LLM_CONFIG": str(path)}
    if said is None:
        assert load_settings(given).port == 80
        return
    with pytest.raises(SettingError, match=re.escape(said)) as raised:
        load_settings(given)
    if text and "TOML" not in said and 'host = "' not in text and "api_key" not in said:
        assert str(path) in str(raised.value)


def test_a_file_that_is_named_must_be_there(tmp_path):
    with pytest.raises(SettingError, match="there is no such file"):
        load_settings({"LLM_CONFIG": str(tmp_path / "gone.toml")})


@pytest.mark.parametrize("folder", ["file/below", "file"])
def test_a_log_folder_that_cannot_be_had_is_refused_at_the_start(tmp_path, folder):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(SettingError, match="cannot be written to"):
        serve._monitoring(Settings(log_dir=str(tmp_path / folder)), "m", serve.REFERENCE)
    serve._monitoring(Settings(log_dir=str(tmp_path / "new/one")), "m", serve.REFERENCE).close()
    assert (tmp_path / "new" / "one").is_dir()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_service_goes_on_though_nobody_reads_what_it_prints(name, monkeypatch):
    class Full:
        def write(self, words):
            raise OSError("no space left")

        flush = write

    monkeypatch.setattr(f"sys.{name}", Full())
    serve._tell("hello", name)
    serve._tell("hello again", name)


def test_a_secret_is_never_shown():
    found = load_settings({"LLM_API_KEY": "hunter2"})
    assert found.changed() == {"api_key": "(set)"}
    shown = serve.greeting(found, "m", "http://x", 1.0)
    assert "hunter2" not in shown
    assert "Bearer $LLM_API_KEY" in shown
    assert "hunter2" not in repr(found)


def test_the_greeting_names_what_differs():
    shown = serve.greeting(Settings(port=81, max_running=2), "m", "http://h:81", 1.25)
    assert "port = 81, max_running = 2" in shown
    assert "http://h:81/dashboard" in shown
    assert "curl -N http://h:81/v1/chat/completions" in shown
    assert 'OpenAI(base_url="http://h:81/v1"' in shown
    assert "--log-seconds 0" in shown
    assert "--log-seconds" not in serve.greeting(Settings(log_seconds=0), "m", "http://h", 1.0)


def test_every_setting_is_an_option_of_the_command_line():
    parser = serve._parser()
    options = {option for action in parser._actions for option in action.option_strings}
    for one in fields(Settings):
        if one.name != "api_key":
            assert f"--{one.name.replace('_', '-')}" in options, one.name
    found = serve._overrides(parser.parse_args(["--port", "5", "--write-buffer", "2048"]))
    assert {name: value for name, value in found.items() if value} == {
        "port": "5",
        "write_buffer": "2048",
    }


def test_the_table_in_the_reading_is_that_of_the_code():
    text = README.read_text(encoding="utf-8")
    assert settings_table() in text
    assert len(settings_table().splitlines()) == 2 + len(fields(Settings))


def test_no_setting_is_without_words():
    for one in fields(Settings):
        assert len(one.metadata["words"].split()) >= 3
