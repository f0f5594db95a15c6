"""Tables of stores and roles: what they may be called, how each source reaches them, and what the errors say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Config, Durability, LoadedConfig, load, settings_of
from holdfast.config import sources as sources_module
from holdfast.errors import ConfigurationError

Problem = Callable[..., str]
Loader = Callable[..., LoadedConfig]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """``load`` of a text, as the file FILE."""
    monkeypatch.setattr(sources_module, "DEFAULT_FILE", tmp_path / "none.toml")
    file = tmp_path / "holdfast.toml"

    def load_it(text: str = "", environment: dict[str, str] | None = None, **options: Any) -> LoadedConfig:
        file.write_text(text)
        return load(file, environment, {key.replace("__", "."): value for key, value in options.items()})

    return load_it


@pytest.fixture
def problem_with(loaded: Loader, tmp_path: Path) -> Problem:
    """What ``load`` complains of, with the path of the file as FILE."""

    def problem(*given: Any, **options: Any) -> str:
        with pytest.raises(ConfigurationError) as caught:
            loaded(*given, **options)
        message = str(caught.value).replace(f"{tmp_path}/holdfast.toml", "FILE")
        assert "\n" not in message
        return message

    return problem


def test_two_stores_are_there_when_nothing_is_said(loaded: Loader) -> None:
    config = loaded().config
    assert list(config.stores) == list(config.mounted_stores) == ["checkpoints", "blobs"]
    assert config.role("any") == config.workdirs
    assert (config.workdirs.local_state, config.workdirs.blob_storage) == ("checkpoints", "blobs")


def test_they_stay_beside_others(loaded: Loader) -> None:
    found = loaded('[stores.team-a]\nurl = "s3://a"\nuid = 7\n[stores.checkpoints]\nuid = 8\n')
    assert list(found.config.mounted_stores) == ["checkpoints", "blobs", "team-a"]
    assert found.config.stores["team-a"].uid == 7
    assert found.config.stores["team-a"].durability is Durability.COMMIT
    assert found.config.stores["checkpoints"].uid == 8
    assert found.config.stores["checkpoints"].url == Config().stores["checkpoints"].url


def test_a_store_with_an_empty_url_is_left_out(loaded: Loader) -> None:
    config = loaded('[stores.blobs]\nurl = ""\n[workdirs]\nblob_storage = ""\n').config
    assert list(config.mounted_stores) == ["checkpoints"]
    assert list(loaded("", None, blobs__url="", workdirs__blob_storage="").config.mounted_stores) == ["checkpoints"]


def test_a_role_takes_from_workdirs_what_it_does_not_say(loaded: Loader) -> None:
    roles = '[roles.one]\nlocal_state = "team"\n[roles.two]\nbase = "b"'
    config = loaded(f"{TEAM}[workdirs]\nretain_seconds = 5\n{roles}").config
    one, two = config.role("one"), config.role("two")
    assert (one.base, one.retain_seconds, one.local_state, one.blob_storage) == ("work", 5, "team", "blobs")
    assert (two.base, two.retain_seconds, two.local_state, two.blob_storage) == ("b", 5, "checkpoints", "blobs")
    assert config.every_role() == [config.workdirs, one, two]


# --- sources ----------------------------------------------------------------------------------------------------------


def test_each_source_reaches_each_table(loaded: Loader) -> None:
    text = '[stores.team-a]\nurl = "s3://file"\nuid = 1\ngid = 1\n[stores.team-a.options]\nregion = "file"\n'
    environment = {
        "HOLDFAST_STORES__TEAM_A__UID": "2",
        "HOLDFAST_STORES__TEAM_A__GID": "2",
        "HOLDFAST_STORES__TEAM_A__OPTIONS__ACCESS_KEY_ID": "two",
        "HOLDFAST_STORES__OTHER__URL": "s3://other",
        "HOLDFAST_ROLES__TASK_MANAGER__LOCAL_STATE": "team-a",
    }
    found = loaded(
        text + "[roles.Task-Manager]\n", environment, **{"stores__team-a__gid": "3", "stores__new__url": "s3://new"}
    )
    config = found.config
    team = config.stores["team-a"]
    assert list(config.stores) == ["checkpoints", "blobs", "team-a", "other", "new"]
    assert (team.url, team.uid, team.gid) == ("s3://file", 2, 3)
    assert team.options == {"region": "file", "access_key_id": "two"}
    assert config.role("Task-Manager").local_state == "team-a"
    rows = {key: (value, source) for key, value, source in found.rows()}
    assert rows["stores.team-a.uid"] == ("2", "$HOLDFAST_STORES__TEAM_A__UID")
    assert rows["stores.team-a.gid"] == ("3", "option")
    assert rows["stores.blobs.uid"] == ("-1", "default")
    assert rows["roles.Task-Manager.local_state"] == ("team-a", "$HOLDFAST_ROLES__TASK_MANAGER__LOCAL_STATE")
    assert "roles.Task-Manager.base" not in rows


def test_a_variable_means_the_table_of_exactly_its_name_first(loaded: Loader) -> None:
    text = '[stores.team-a]\nurl = "s3://hyphen"\n[stores.team_a]\nurl = "s3://underscore"\n'
    stores = loaded(text, {"HOLDFAST_STORES__TEAM_A__UID": "2"}).config.stores
    assert (stores["team-a"].uid, stores["team_a"].uid) == (-1, 2)


def test_a_variable_that_may_mean_two_tables_is_an_error(problem_with: Problem) -> None:
    text = '[stores.a-b_c]\nurl = "s3://1"\n[stores.a_b-c]\nurl = "s3://2"\n'
    assert problem_with(text, {"HOLDFAST_STORES__A_B_C__UID": "2"}) == (
        "stores.a_b_c.uid ($HOLDFAST_STORES__A_B_C__UID): it may mean a-b_c or a_b-c; "
        "set that one in the file or by an option"
    )


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("[checkpoints]\nuid = 7", "[stores.checkpoints]\nuid = 7"),
        ("[checkpoints.options]\nregion = 'x'", "[stores.checkpoints.options]\nregion = 'x'"),
        ("[blobs]\nurl = 's3://x'", "[stores.blobs]\nurl = 's3://x'"),
        ("[workdirs.roles.worker]\nbase = 'x'", "[roles.worker]\nbase = 'x'"),
    ],
)
def test_earlier_spellings_mean_the_same(loaded: Loader, earlier: str, now: str) -> None:
    assert loaded(earlier).config == loaded(now).config
    assert loaded(earlier).config != Config()
    assert loaded(earlier).rows() == loaded(now).rows()


def test_earlier_spellings_in_variables_and_options(loaded: Loader) -> None:
    found = loaded(
        "[checkpoints]\nuid = 1\ngid = 1\nfile_mode = '0600'",
        {"HOLDFAST_STORES__CHECKPOINTS__UID": "2", "HOLDFAST_CHECKPOINTS__GID": "2"},
        checkpoints__gid="3",
        workdirs__roles__worker__retain_seconds="4",
    )
    store = found.config.stores["checkpoints"]
    assert (store.uid, store.gid, store.file_mode) == (2, 3, 0o600)
    assert found.config.role("worker").retain_seconds == 4
    assert found.sources["stores.checkpoints.uid"] == "$HOLDFAST_STORES__CHECKPOINTS__UID"
    assert found.named("stores.checkpoints.gid") == "checkpoints.gid (option)"
    assert found.named("stores.blobs.url") == "stores.blobs.url (default)"


def test_one_source_that_spells_a_key_in_both_ways(problem_with: Problem) -> None:
    assert problem_with("[checkpoints]\nuid = 1\n[stores.checkpoints]\nuid = 2") == (
        "checkpoints.uid (FILE) and stores.checkpoints.uid (FILE) are one key; keep only stores.checkpoints.uid"
    )
    assert problem_with("", {"HOLDFAST_BLOBS__UID": "1", "HOLDFAST_STORES__BLOBS__UID": "1"}) == (
        "blobs.uid ($HOLDFAST_BLOBS__UID) and stores.blobs.uid ($HOLDFAST_STORES__BLOBS__UID) are one key; "
        "keep only stores.blobs.uid"
    )
    assert problem_with("", None, workdirs__roles__w__base="x", roles__w__base="x") == (
        "workdirs.roles.w.base (option) and roles.w.base (option) are one key; keep only roles.w.base"
    )


def test_pairs_of_set() -> None:
    assert settings_of(["a.b=c=d", "stores.t.url="]) == {"a.b": "c=d", "stores.t.url": ""}
    for wrong in ("a.b", "a=b", "=x"):
        with pytest.raises(ConfigurationError, match=r"write SECTION\.KEY=VALUE"):
            settings_of([wrong])


# --- mistakes ---------------------------------------------------------------------------------------------------------

ALLOWED = "use up to 63 small letters, digits, hyphens and underscores, beginning with a letter or digit"
TEAM = '[stores.team]\nurl = "s3://team"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[stores.checkpoint]\nuid = 1",
            "stores.checkpoint.uid (FILE): the store checkpoint has no url; set stores.checkpoint.url if it is a new one; "
            "did you mean checkpoints?",
        ),
        (
            "[stores.team]",
            "stores.team (FILE): the store team has no url; set stores.team.url if it is a new one; "
            "there are checkpoints, blobs",
        ),
        ("[stores.team]\nulr = 's3://x'", "stores.team.ulr (FILE): there is no key 'ulr'; did you mean url?"),
        ("[store.team]\nurl = 's3://x'", "store.team.url (FILE): store has no tables; did you mean stores.team?"),
        ("[role.team]\nbase = 'x'", "role.team.base (FILE): there is no section 'role'; did you mean roles?"),
        (
            "[stores]\nteam = 's3://x'",
            "stores.team (FILE): 's3://x' is not allowed; write a section, with keys of its own",
        ),
        (
            f"{TEAM}[roles.worker]\nlocal_stat = 'team'",
            "roles.worker.local_stat (FILE): there is no key 'local_stat'; did you mean local_state?",
        ),
        (
            f"{TEAM}[roles.worker]\nlocal_state = 'taem'",
            "roles.worker.local_state (FILE): there is no store 'taem' (write '' for none); did you mean team?",
        ),
        (
            "[roles.worker]\nblob_storage = 'zzz'",
            "roles.worker.blob_storage (FILE): there is no store 'zzz' (write '' for none); there are checkpoints, blobs",
        ),
        (
            "[stores.blobs]\nurl = ''",
            "workdirs.blob_storage (default): the store blobs is left out of the mount; "
            "name another, or write '' for none, or set stores.blobs.url",
        ),
        (
            f"{TEAM}[workdirs]\nbase = 'team'",
            "workdirs.base (FILE): 'team' is the name of a store (stores.team); write another",
        ),
        (
            "[workdirs.roles.worker]\nbase = 'blobs'",
            "workdirs.roles.worker.base (FILE): 'blobs' is the name of a store (stores.blobs); write another",
        ),
        (
            "[roles.a_b]\nbase = 'x'",
            "roles.a_b.base (FILE): 'a_b' can't be the name of a role; "
            "use letters, digits and hyphens, beginning with a letter",
        ),
        *(
            (
                f'[stores."{name}"]\nurl = "s3://x"',
                f"stores.{name}.url (FILE): '{name}' can't be the name of a store; {ALLOWED}",
            )
            for name in ("Team", ".", "..", ".holdfast", "-a", "_a", "a/b", "a b", "ä", "", "a" * 64)
        ),
        *(
            (
                f'[workdirs]\nbase = "{base}"',
                f"workdirs.base (FILE): '{base}' can't be a directory in the root of the mount; "
                "write one name, as in 'work'",
            )
            for base in (".", "..", ".holdfast", "a/b", "/work")
        ),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(problem_with: Problem, text: str, message: str) -> None:
    assert problem_with(text) == message


def test_a_base_without_a_name_is_a_mistake(problem_with: Problem) -> None:
    problem = problem_with('[workdirs]\nbase = ""')
    assert problem == "workdirs.base (FILE): '' is not allowed; write a string that is not empty"
    assert problem_with('[workdirs]\nbase = "a\\u0000b"').startswith("workdirs.base (FILE): 'a\\x00b' can't be")


def test_a_mistake_names_the_variable(problem_with: Problem) -> None:
    assert problem_with("", {"HOLDFAST_STORES__TEAM_A__UID": "1"}).startswith(
        "stores.team_a.uid ($HOLDFAST_STORES__TEAM_A__UID): the store team_a has no url; set stores.team_a.url"
    )
    assert problem_with("", {"HOLDFAST_CHECKPOINTS__UID": "me"}) == (
        "checkpoints.uid ($HOLDFAST_CHECKPOINTS__UID): 'me' is not allowed; write a whole number"
    )


@pytest.mark.parametrize("owner", [-2, 2**32 - 1, 2**40])
def test_an_owner_that_no_file_can_have_is_a_mistake(problem_with: Problem, owner: int) -> None:
    assert problem_with(f"[stores.blobs]\ngid = {owner}").startswith(f"stores.blobs.gid (FILE): {owner} is not allowed")


@pytest.mark.parametrize("base", ["a" * 256, "ä" * 128, "a\\nb", "\\u2028"])
def test_a_base_that_no_directory_can_be_called_is_a_mistake(problem_with: Problem, base: str) -> None:
    assert "can't be a directory in the root of the mount" in problem_with(f'[roles.w]\nbase = "{base}"')


def test_a_name_with_a_line_break_is_told_in_one_line(problem_with: Problem) -> None:
    assert problem_with('[stores."a\\nb"]\nuid = 1').startswith("stores.a\\nb.uid (FILE): 'a\\nb' can't be")


@pytest.mark.parametrize(
    "text",
    [
        "[stores.blobs]\noptions = 'secret_access_key=hush'",
        "[stores.blobs.options]\nsecret_access_key = ['hush']",
        "[[stores.blobs]]\noptions = { secret_access_key = 'hush' }",
        "[[blobs]]\noptions = { secret_access_key = 'hush' }",
        "stores = [{ options = { secret_access_key = 'hush' } }]",
    ],
)
def test_a_mistake_shows_no_secret(problem_with: Problem, text: str) -> None:
    assert "hush" not in problem_with(text)
    assert "hush" not in problem_with("", {"HOLDFAST_STORES__BLOBS__OPTIONS": '{"secret_access_key": "hush"}'})
