"""Where settings come from, which one wins, and what the errors say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Config, Durability, LoadedConfig, load
from holdfast.config import sources as sources_module
from holdfast.errors import ConfigurationError
from tests.support.users.privileges import as_nobody, needs_root


@pytest.fixture(autouse=True)
def nothing_in_etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    default = tmp_path / "etc.toml"
    monkeypatch.setattr(sources_module, "DEFAULT_FILE", default)
    return default


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


@pytest.fixture
def problem_with(file: Path) -> Callable[..., str]:
    """What ``load`` complains of, with the path of the file as FILE."""

    def problem(text: str = "", environment: dict[str, str] | None = None, options: dict[str, Any] | None = None) -> str:
        file.write_text(text)
        with pytest.raises(ConfigurationError) as caught:
            load(file, environment, options)
        return str(caught.value).replace(str(file), "FILE")

    return problem


def row(loaded: LoadedConfig, key: str) -> tuple[str, str]:
    (found,) = [(value, source) for name, value, source in loaded.rows() if name == key]
    return found


def test_without_sources_everything_is_a_default() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert loaded.sources == {}
    assert {source for _, _, source in loaded.rows()} == {"default"}


def test_options_beat_the_environment_beats_the_file_beats_the_default(file: Path) -> None:
    file.write_text("[cache]\nmax_bytes = 1\nmin_free_bytes = 1\nlow_watermark = 0.1\n")
    environment = {"HOLDFAST_CACHE__MAX_BYTES": "2", "HOLDFAST_CACHE__MIN_FREE_BYTES": "2"}
    loaded = load(file, environment, {"cache.max_bytes": 3, "cache.min_free_bytes": None})
    assert (loaded.config.cache.max_bytes, loaded.config.cache.min_free_bytes) == (3, 2)
    assert row(loaded, "cache.max_bytes") == ("3", "option")
    assert row(loaded, "cache.min_free_bytes") == ("2", "$HOLDFAST_CACHE__MIN_FREE_BYTES")
    assert row(loaded, "cache.low_watermark") == ("0.1", str(file))
    assert row(loaded, "log.level") == ("info", "default")


def test_texts_become_what_the_key_holds() -> None:
    loaded = load(
        None,
        {
            "HOLDFAST_CACHE__MAX_BYTES": "20GiB",
            "HOLDFAST_MOUNT__ALLOW_OTHER": "false",
            "HOLDFAST_REMOTE__PARALLEL_TRANSFERS": "4",
            "HOLDFAST_CHECKPOINTS__DURABILITY": "async",
            "HOLDFAST_CHECKPOINTS__FILE_MODE": "0600",
            "HOLDFAST_WORKDIRS__ROLES__WORKER__RETAIN_SECONDS": "60",
            "HOLDFAST_CHECKPOINTS__OPTIONS__REGION": "eu-1",
        },
    )
    config = loaded.config
    assert config.cache.max_bytes == 20 * 2**30
    assert config.mount.allow_other is False
    assert config.remote.parallel_transfers == 4
    assert config.stores["checkpoints"].durability is Durability.ASYNC
    assert config.stores["checkpoints"].file_mode == 0o600
    assert config.roles["worker"].retain_seconds == 60
    assert config.stores["checkpoints"].options == {"region": "eu-1"}
    assert row(loaded, "cache.max_bytes")[0] == "20GiB"
    assert row(loaded, "stores.checkpoints.file_mode")[0] == "0600"
    assert row(loaded, "stores.checkpoints.durability")[0] == "async"


def test_every_key_can_be_set_by_what_rows_print() -> None:
    printed = {key: value for key, value, _ in load().rows() if value not in ("[]", "")}
    assert load(None, None, printed).config == Config()


def test_sections_and_options_are_merged_key_by_key(file: Path) -> None:
    file.write_text('[checkpoints]\ndurability = "async"\n[checkpoints.options]\nregion = "a"\nendpoint = "b"\n')
    loaded = load(file, {"HOLDFAST_CHECKPOINTS__OPTIONS__REGION": "c"}, {"blobs.url": "s3://b"})
    assert loaded.config.stores["checkpoints"].options == {"region": "c", "endpoint": "b"}
    assert loaded.config.stores["checkpoints"].url == Config().stores["checkpoints"].url
    assert loaded.config.stores["blobs"].url == "s3://b"


def test_lists_of_names_are_texts_with_commas_outside_the_file(file: Path) -> None:
    file.write_text('[names]\ntemporary = ["*.a", "*.b"]\nwrite_once = ["x"]\n')
    environment = {"HOLDFAST_NAMES__WRITE_ONCE": "manifest , **/done,", "HOLDFAST_NAMES__SIDECAR": ""}
    names = load(file, environment, {"names.immutable": "*.sst"}).config.names
    assert names.temporary == ["*.a", "*.b"]
    assert names.write_once == ["manifest", "**/done"]
    assert names.immutable == ["*.sst"]
    assert names.sidecar == []


def test_variables_without_two_underscores_belong_to_others() -> None:
    assert load(None, {"HOLDFAST_SOCKET": "/x", "HOLDFAST_TEST_DIRECTORY": "/y", "PATH": "/z"}).sources == {}


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_file_in_etc_is_read_if_it_is_there(nothing_in_etc: Path) -> None:
    nothing_in_etc.write_text('[log]\nlevel = "debug"\n')
    loaded = load()
    assert row(loaded, "log.level") == ("debug", str(nothing_in_etc))


def test_a_file_can_be_named_by_the_environment(file: Path) -> None:
    file.write_text('[log]\nlevel = "debug"\n')
    assert row(load(None, {"HOLDFAST_CONFIG": str(file)}), "log.level") == ("debug", str(file))


def test_a_file_that_was_named_must_exist(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"the configuration file {file} does not exist"):
        load(file)
    with pytest.raises(ConfigurationError, match="does not exist"):
        load(None, {"HOLDFAST_CONFIG": str(file)})


def test_a_directory_is_no_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=rf"can't read the configuration file {tmp_path}: Is a directory"):
        load(tmp_path)


@needs_root
def test_a_file_that_may_not_be_read_is_told(workspace: Path) -> None:
    file = workspace / "holdfast.toml"
    file.touch(mode=0o600)

    def load_it() -> None:
        with pytest.raises(ConfigurationError, match=f"can't read the configuration file {file}: Permission denied"):
            load(file)

    as_nobody(load_it)


def test_a_file_that_is_not_text(file: Path) -> None:
    file.write_bytes(b'[log]\nlevel = "\xff"\n')
    with pytest.raises(ConfigurationError, match=rf"{file} is not UTF-8"):
        load(file)


def test_bad_toml_is_told_with_line_and_column(problem_with: Callable[..., str]) -> None:
    problem = problem_with("[cache]\nmax_bytes = \n")
    assert problem.startswith("FILE is not valid TOML: ")
    assert "line 2" in problem


# --- values that can't be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cache]\nmax_byts = 1", "cache.max_byts (FILE): there is no key 'max_byts'; did you mean max_bytes?"),
        ("[cach]\nx = 1", "cach.x (FILE): there is no section 'cach'; did you mean cache?"),
        (
            'mountpoint = "/x"',
            "mountpoint (FILE): 'mountpoint' stands outside of all sections; did you mean mount.mountpoint?",
        ),
        (
            "max_bytes = 5",
            "max_bytes (FILE): 'max_bytes' stands outside of all sections; did you mean cache.max_bytes or "
            "workdirs.max_bytes or log.max_bytes?",
        ),
        ("x = 5", "x (FILE): there is no section 'x'; there are " + ", ".join(Config.__struct_fields__)),
        ("[cach]", "cach (FILE): there is no section 'cach'; did you mean cache?"),
        (
            "[store]\nzzz = 1",
            "store.zzz (FILE): there is no key 'zzz'; there are directory, other_disks, spread_cache",
        ),
        (
            "[workdirs.roles.worker]\nretain = 1",
            "workdirs.roles.worker.retain (FILE): there is no key 'retain'; did you mean retain_seconds?",
        ),
        ("[log.level]\nx = 1", "log.level.x (FILE): log.level is a value, not a section"),
        ("cache = 5", "cache (FILE): 5 is not allowed; write a section, with keys of its own"),
        ('checkpoints = "s3://x"', "checkpoints (FILE): 's3://x' is not allowed; write a section, with keys of its own"),
        ('[mount]\nallow_other = "yes"', "mount.allow_other (FILE): 'yes' is not allowed; write true or false"),
        (
            "[checkpoints]\ndurability = 1",
            "checkpoints.durability (FILE): 1 is not allowed; write one of local, commit, async",
        ),
        ("[checkpoints]\nurl = 5", "checkpoints.url (FILE): 5 is not allowed; write a string"),
        ('[store]\ndirectory = ""', "store.directory (FILE): '' is not allowed; write a string that is not empty"),
        ("[checkpoints]\nuid = 1.5", "checkpoints.uid (FILE): 1.5 is not allowed; write a whole number"),
        (
            "[checkpoints]\nfile_mode = 0o644",
            'checkpoints.file_mode (FILE): 420 is not allowed; write octal digits in quotes, as in "0644"',
        ),
        (
            "[checkpoints.options]\nregion = [1]",
            "checkpoints.options.region (FILE): [1] is not allowed; write a string or a whole number or a number"
            " or true or false",
        ),
        ('[names]\ntemporary = "*.x"', "names.temporary (FILE): '*.x' is not allowed; write a list of strings"),
        ("[names]\ntemporary = [1]", "names.temporary (FILE): [1] is not allowed; write a list of strings"),
        (
            "[remote]\nretry_deadline_seconds = 0",
            "remote.retry_deadline_seconds (FILE): 0 is not allowed; write a number above 0, up to 1,000,000,000",
        ),
        (
            "[remote]\nretry_deadline_seconds = nan",
            "remote.retry_deadline_seconds (FILE): nan is not allowed; write a number above 0, up to 1,000,000,000",
        ),
        (
            "[sweep]\ngrace_seconds = inf",
            "sweep.grace_seconds (FILE): inf is not allowed; write a number of at least 0, up to 1,000,000,000",
        ),
        (
            "[remote]\nparallel_transfers = 0",
            "remote.parallel_transfers (FILE): 0 is not allowed; write a whole number of at least 1",
        ),
        (
            "[cache]\nmin_free_share = 5",
            "cache.min_free_share (FILE): 5 is not allowed; write a number of at least 0, below 1",
        ),
        (
            "[cache]\nlow_watermark = 1.5",
            "cache.low_watermark (FILE): 1.5 is not allowed; write a number above 0, up to 1",
        ),
        (
            '[workdirs.roles.worker]\nretain_seconds = "long"',
            "workdirs.roles.worker.retain_seconds (FILE): 'long' is not allowed; "
            "write a number of at least 0, up to 1,000,000,000",
        ),
        *(
            (
                f"[cache]\nmax_bytes = {value}",
                f"cache.max_bytes (FILE): {shown} is not allowed; write a number of bytes or a size with its unit, "
                "as in 500000000, 512MiB or 20GB",
            )
            for value, shown in (
                ("-5", "-5"),
                ("1.5", "1.5"),
                ("true", "true"),
                ("[]", "[]"),
                ("{}", "{}"),
                ("'5 PB'", "'5 PB'"),
            )
        ),
    ],
)
def test_the_error_names_key_and_source_and_says_what_is_allowed(
    problem_with: Callable[..., str], text: str, message: str
) -> None:
    assert problem_with(text) == message


@pytest.mark.parametrize(
    ("token", "what"),
    [
        ('token = "0123456789abcde"', "ui.token (FILE): it is too short, too long or has other characters"),
        ('token = "0123456789abcdef/"', "ui.token (FILE): it is too short, too long or has other characters"),
        ("", "ui.token (default): ui.listen needs one"),
    ],
)
def test_a_page_on_tcp_needs_a_token_that_nobody_guesses(problem_with: Callable[..., str], token: str, what: str) -> None:
    problem = problem_with(f'[ui]\nlisten = "127.0.0.1:9091"\n{token}')
    assert problem.startswith(what)
    assert "0123456789" not in problem


def test_the_error_names_the_variable(problem_with: Callable[..., str]) -> None:
    assert problem_with("", {"HOLDFAST_CACHE__LOW_WATERMARK": "much"}) == (
        "cache.low_watermark ($HOLDFAST_CACHE__LOW_WATERMARK): 'much' is not allowed; write a number above 0, up to 1"
    )
    assert problem_with("", {"HOLDFAST_CACHES__X": "1"}) == (
        "caches.x ($HOLDFAST_CACHES__X): there is no section 'caches'; did you mean cache?"
    )


def test_the_error_names_the_option(problem_with: Callable[..., str]) -> None:
    assert problem_with("", None, {"cache.low_watermark": "2"}) == (
        "cache.low_watermark (option): '2' is not allowed; write a number above 0, up to 1"
    )


def test_a_value_that_a_stronger_source_replaces_is_not_complained_of(file: Path) -> None:
    file.write_text('[cache]\nmax_bytes = "much"\n')
    assert load(file, {"HOLDFAST_CACHE__MAX_BYTES": "1"}).config.cache.max_bytes == 1


def test_a_value_and_a_section_of_one_name_are_an_error_whichever_comes_first(problem_with: Callable[..., str]) -> None:
    assert "cache (FILE): 5 is not allowed" in problem_with("cache = 5", {"HOLDFAST_CACHE__MAX_BYTES": "1"})
    problem = problem_with("[checkpoints.options.s3]\nregion = 1", {"HOLDFAST_CHECKPOINTS__OPTIONS__S3": "x"})
    assert problem == "checkpoints.options.s3.region (FILE): stores.checkpoints.options.s3 is a value, not a section"


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "secret_access_key",
        "AWS_SECRET_ACCESS_KEY",
        "session_token",
        "account_key",
        "access_key",
        "sas_key",
        "sas_token",
        "client_secret",
        "service_account_key",
        "password",
        "passwd",
        "passphrase",
        "connection_string",
        "key",
        "aws_sse_customer_key_base64",
    ],
)
def test_secrets_are_not_shown(problem_with: Callable[..., str], key: str) -> None:
    loaded = load(None, None, {f"checkpoints.options.{key}": "hush"})
    assert row(loaded, f"stores.checkpoints.options.{key}") == ("***", "option")
    assert "hush" not in problem_with(f'[checkpoints.options]\n{key} = ["hush"]')


@pytest.mark.parametrize("key", ["access_key_id", "aws_sse_kms_key_id", "key_filename", "region", "endpoint", "client_id"])
def test_what_is_no_secret_is_shown(key: str) -> None:
    loaded = load(None, None, {f"checkpoints.options.{key}": "open"})
    assert row(loaded, f"stores.checkpoints.options.{key}")[0] == "open"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:hush@host/path", "ftp://me:***@host/path"),
        ("ftp://me:hu@sh@host/path", "ftp://me:***@host/path"),
        ("hdfs://me@host/path", "hdfs://me@host/path"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)
def test_a_password_in_a_url_is_not_shown(url: str, shown: str) -> None:
    assert row(load(None, None, {"blobs.url": url}), "stores.blobs.url")[0] == shown
