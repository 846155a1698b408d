"""A log with named columns keeps its names, its order and its missing values, and refuses what it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError

TEXT = """patient,day,age,ward,smoker,dose,benefit,bleeding,done,doctor,p
b,2,61,north,no,high,2,1,true,Kim,0.5
b,1,61,north,no,low,1,0,false,Kim,0.25
a,1,,south,yes,low,4,0,false,Lee,1
"""
ROLES: dict[str, Any] = {
    "action": "dose",
    "reward": "benefit",
    "costs": ["bleeding"],
    "episode": "patient",
    "step": "day",
    "terminal": "done",
    "decider": "doctor",
    "propensity": "p",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(TEXT)
    return tmp_path / "log.csv"


def test_rows_are_sorted_and_names_travel(path: Path) -> None:
    log = EventLog.read(path, **ROLES)
    assert log.actions == ("high", "low")
    assert log.action.tolist() == [1, 0, 1]
    assert log.reward.tolist() == [1, 2, 4]
    assert log.costs["bleeding"].tolist() == [0, 1, 0]
    assert log.episodes == [slice(0, 2), slice(2, 3)]
    assert log.step.tolist() == [0, 1, 0]
    assert log.cut_short.tolist() == [False, True]
    assert log.deciders == ("Kim", "Lee")
    assert log.propensity is not None
    assert log.propensity.tolist() == [0.25, 0.5, 1]
    assert [(c.name, c.kind) for c in log.columns] == [
        ("age", "numeric"),
        ("ward", "categorical"),
        ("smoker", "boolean"),
    ]
    frame = log.frame()
    assert frame["ward"].tolist() == ["north", "north", "south"]
    assert np.isnan(frame["age"][2])
    assert log.totals(log.reward, 0.5).tolist() == [2, 4]


def test_files_frames_and_dicts_give_the_same_log(path: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(path)
    frame.to_parquet(tmp_path / "log.parquet")
    logs = [EventLog.read(x, **ROLES) for x in (path, tmp_path / "log.parquet", frame, dict(frame))]
    for log in logs[1:]:
        np.testing.assert_array_equal(log.features()[0], logs[0].features()[0])
        assert log.features()[1] == logs[0].features()[1]
        assert log.actions == logs[0].actions
        np.testing.assert_array_equal(log.action, logs[0].action)


def test_features(path: Path) -> None:
    log = EventLog.read(path, **ROLES)
    matrix, names = log.features()
    assert names == ["age", "age missing", "ward=north", "ward=south", "smoker"]
    np.testing.assert_array_equal(matrix, [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 1, 1]])
    only_north = Encoding.fit(log.take(np.array([0, 1])).columns)
    with pytest.raises(DataError, match="row 3: a missing value"):
        only_north(log.columns)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("low,1,0", "low,,0", r"log.csv: column `benefit`, row 2: a missing value, expected a finite number; fill"),
        ("low,1,0", "low,nan,0", r"column `benefit`, row 2"),
        ("low,1,0", "low,1,inf", r"column `bleeding`, row 2: inf, expected a finite number"),
        ("low,1,0", ",1,0", r"column `dose`, row 2: a missing value, expected a label"),
        ("Kim,0.25", "Kim,0", r"column `p`, row 2: 0.0, expected a probability in \(0, 1\]"),
        ("Kim,0.25", "Kim,1.5", r"column `p`, row 2: 1.5, expected a probability"),
        ("b,1,", "b,2,", r"column `day`, row 2: the same step twice"),
        ("0,false,Kim", "0,true,Kim", r"column `done`, row 2: terminal, but its episode goes on"),
        ("bleeding", "bleedin", r"no column `bleeding`. Did you mean `bleedin`"),
    ],
)
def test_bad_values_are_named(path: Path, old: str, new: str, message: str) -> None:
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(DataError, match=message) as error:
        EventLog.read(path, **ROLES)
    assert "\n" not in str(error.value)


def test_bandits_have_episodes_of_one_row_and_identifiers_are_ignored() -> None:
    size = 200
    source = {
        "action": np.arange(size) % 3 * 10,
        "reward": np.ones(size),
        "x": np.arange(size) + 0.5,
        "next_x": np.ones(size),
        "row": np.arange(size),
    }
    source["who"] = np.array([f"id{i}" for i in range(size)])
    log = EventLog.read(source, episode=None)
    assert len(log.episodes) == size
    assert log.actions == (0, 10, 20)
    assert set(log.ignored) == {"next_x", "row", "who"}
    one, other = log.split(seed=1, share=0.25)
    assert len(one) == 50
    assert len(other) == 150
    assert sorted([*one.columns[0].values, *other.columns[0].values]) == [i + 0.5 for i in range(size)]
    with pytest.raises(DataError, match=r"no column `episode`. Name it: .*--columns episode=NAME. There are "):
        EventLog.read(source)
    with pytest.raises(DataError, match=r"no column `action`. Name it: .*--columns action=NAME. There are patient"):
        EventLog.read({"patient": [0, 0], "dose": [1, 2], "reward": [0.0, 1.0]})


def test_whole_episodes_are_split() -> None:
    episode = np.repeat(np.arange(10), 3)
    log = EventLog.read({"action": episode % 2, "reward": episode, "episode": episode})
    one, other = log.split(seed=0)
    assert {len(one), len(other)} == {15}
    assert one.step.tolist() == [0, 1, 2] * 5
    assert not set(one.reward) & set(other.reward)
