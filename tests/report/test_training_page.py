"""The page of a training: true to the numbers in the folder, self-contained, readable by all, short when parts lack."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pdocrl.report.page as report_page
from pdocrl.data import save
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.score import summarise
from pdocrl.ope.result import read_ope, write_ope
from pdocrl.records import write_record
from pdocrl.report import read_results, report
from pdocrl.report.chart import COLOURS
from pdocrl.report.findings import findings, lead
from pdocrl.report.page_tables import at_one_limit, best_logged, label
from pdocrl.report.pictures import data_planes
from pdocrl.report.provenance import commands
from rows import told, told_run

LIMITS, SEEDS, STEPS = (1.0, 3.0), (0, 5), (100, 200, 300)  # of the training that `make_run` makes


class Page(HTMLParser):
    """Every element with its attributes, and the text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(re.sub(r"(?<=<style>).*?</style>", "</style>", self.source, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_the_page_asks_nothing_of_the_network(make_run):
    page = Page(report(make_run()))
    for _, attributes in page.elements:
        for name in ("src", "srcset", "href"):
            assert attributes.get(name, "#").startswith(("data:", "#"))
    assert len(page.all("script")) == 2  # the page's own, and the positions of its slider
    assert "http" not in page.source
    assert "@import" not in page.source
    assert "url(" not in page.source.split("<svg")[0]


def test_every_picture_has_a_text_and_every_id_is_unique(make_run):
    page = Page(report(make_run()))
    drawings = [svg for svg in page.all("svg") if svg.get("class") == "chart"]
    # plane, two of limits asked, episodes, two of learning, λ, two of w, others
    assert len(drawings) == 13
    assert all(svg["role"] == "img" and svg["aria-labelledby"] and svg["aria-describedby"] for svg in drawings)
    assert all(img.get("alt") for img in page.all("img"))
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    targets = {attributes["href"][1:] for _, attributes in page.elements if attributes.get("href", "")[:1] == "#"}
    assert targets <= set(ids)


def test_the_page_has_one_title_headed_sections_and_a_labelled_table(make_run):
    page = Page(report(make_run()))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert len(page.all("h2")) >= 7
    assert all(table["aria-describedby"] for table in page.all("table"))
    assert {th["scope"] for th in page.all("th")} == {"col", "row"}
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))


def test_every_colour_of_a_picture_follows_the_theme(make_run):
    """Colours are the stylesheet's; no picture brings its own."""
    page = Page(report(make_run()))
    for tag, attributes in page.elements:
        assert not {"fill", "stroke"} & set(attributes), tag
        assert "#" not in attributes.get("style", "")
    css = (Path(report_page.__file__).parent / "page.css").read_text()
    used = set(re.findall(r"var\((--[\w-]+)", css)) - {"--share", "--log"}
    for theme in _themes():
        assert used <= set(theme)


def _themes() -> list[dict[str, str]]:
    """The colours of the light and of the dark page."""
    css = (Path(report_page.__file__).parent / "page.css").read_text()
    light, dark = re.findall(r":root[^{]*\{(.*?)\}", css, flags=re.DOTALL)
    return [dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]


def _contrast(one: str, other: str) -> float:
    """WCAG 2: (L₁ + 0.05)/(L₂ + 0.05) of relative luminances."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", _themes(), ids=["light", "dark"])
def test_text_has_a_contrast_of_4_5_and_curves_of_3(theme):
    for text, ground in [
        *((ink, paper) for ink in ("--ink", "--muted", "--accent") for paper in ("--paper", "--card", "--ground")),
        ("--good", "--good-ground"),
        ("--bad", "--bad-ground"),
    ]:
        assert _contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    for i in range(COLOURS):
        assert _contrast(theme[f"--series-{i}"], theme["--paper"]) >= 3


def test_the_table_holds_the_scores(make_run):
    record = read_results(make_run())
    rows = at_one_limit(record)
    assert [(label(record, row), row.safe, row.tail.over, row.tail.episodes) for row in rows] == [
        ("limit 1", True, 0, 4),  # costs 0 and 1, for two seeds
        ("limit 3", True, 2, 4),  # costs 2 and 4: their mean is the limit
    ]
    assert [row.episode_costs for row in rows] == [[0.5], [3.0]]
    assert [row.episode_reward for row in rows] == [1.0, 1.0]
    assert rows[0].reward == pytest.approx((1 + 10) / 20)


def test_the_best_logged_return_is_that_of_an_episode_within_the_limit(make_run):
    record = read_results(make_run())
    dataset = record.dataset
    for row in at_one_limit(record):
        kept = [r for r, c in zip(dataset.reward_return, dataset.cost_return[:, 0], strict=True) if c <= row.limit[0]]
        assert best_logged(record, row.limit) == max(kept)


def test_an_unsafe_policy_is_called_so(make_run):
    record = read_results(make_run({1.0: [5.0, 5.0], 3.0: [0.0, 0.0]}))
    assert lead(record).startswith("1 of 2 policies satisfy their cost limit")
    assert "At limit 1 the mean cost is 5.00 times the limit: not safe." in findings(record)
    page = Page(report(record))
    assert page.text.count("✗ no") == page.text.count("✓ yes") == 1


@pytest.mark.parametrize(("w", "said"), [(9.9, True), (1.1, False)])
def test_saturation_of_w_is_pointed_out_only_when_it_happened(make_run, w, said):
    record = read_results(make_run(w=w))
    assert any("has saturated" in note for note in findings(record)) is said


def test_every_limit_has_its_own_curve_with_a_band_of_its_seeds(make_run):
    page = report(make_run()).read_text()
    reward = next(svg for svg in re.findall(r"<svg.*?</svg>", page) if 'aria-labelledby="reward-0-t"' in svg)
    assert re.findall(r'data-limit="(\d)"', reward) == ["1", "3"]
    assert reward.count('class="band') == reward.count('class="line') == 2
    ends = [(STEPS[-1] + i + 10) / 20 for i in (0.5, 2.5)]  # the mean of runs 0 and 1, and of runs 2 and 3
    assert f"At the end: limit 1 {ends[0]:.3g}; limit 3 {ends[1]:.3g}." in reward


def test_policies_lie_in_the_plane_where_they_were_scored(make_run):
    (drawing,) = data_planes(read_results(make_run())).values()
    marks = re.findall(r"<title>(pdocrl[^<]*)</title>", drawing)
    assert marks == [
        f"pdocrl, limit {limit:g}, seed {seed}: return 1, cost {cost}"
        for limit, cost in zip(LIMITS, ("0.5", "3.0"), strict=True)
        for seed in SEEDS
    ]
    dots = [path.count("M") for path in re.findall(r'class="dots[^"]*" d="([^"]*)"', drawing)]
    assert 0 < sum(dots) <= 40  # logged episodes; those that coincide are one


def test_the_plane_has_the_limits_that_were_played_not_those_trained_for(make_run):
    record = read_results(make_run())
    elsewhere = dataclasses.replace(
        record, runs=[msgspec.structs.replace(run, cost_limit=[2.0]) for run in record.runs]
    )
    (trained,), (played,) = data_planes(record).values(), data_planes(elsewhere).values()
    assert (trained.count('class="limit"'), played.count('class="limit"')) == (len(LIMITS), 1)


def test_two_constraints_have_a_panel_each(make_run):
    folder = make_run(n_costs=2)
    assert len(data_planes(read_results(folder))) == 2
    page = Page(report(folder))
    named = [svg["aria-labelledby"] for svg in page.all("svg") if "aria-labelledby" in svg]
    for name in ("costs-0", "costs1-0", "cost-0", "cost1-0", "lambda_0-0", "lambda_1-0"):
        assert f"{name}-t" in named
    assert "cost_1 3.0" in page.text


def test_sections_appear_only_with_their_data(make_run):
    folder = make_run()
    (folder / "scores.json").unlink()
    (folder / "evaluations.jsonl").unlink()
    (folder.parent / "toy.npz").unlink()
    page = Page(report(folder))
    assert "pdocrl evaluate" in page.text
    for title in ("The data, and where", "Cost of every episode", "Reward and cost while training", "An episode"):
        assert title not in page.text
    assert "The price of cost" in page.text
    assert data_planes(read_results(folder)) == {}


def test_data_that_changed_since_is_not_shown_as_the_training_s(make_run, make_random_dataset):
    folder = make_run()
    save(make_random_dataset(seed=9), folder.parent / "toy.npz")
    assert read_results(folder).dataset is None
    with pytest.raises(PdocrlError, match="was trained on other data"):
        read_results(folder, make_random_dataset(seed=9))


def test_the_commands_shown_repeat_the_training(make_run, run_cli, monkeypatch):
    record = read_results(make_run())
    asked = {}

    def remember(data, agent, **arguments):
        asked.update(arguments, data=data, agent=agent)
        raise PdocrlError("enough")

    monkeypatch.setattr("pdocrl.training.train.train", remember)
    line, *others = commands(record)[0].splitlines()
    run_cli(*shlex.split(line)[1:])
    assert asked["data"] == record.trained.config.data
    assert (asked["agent"], asked["task"], asked["steps"]) == ("pdocrl", "Toy", 300)
    assert [list(limit) for limit in asked["cost_limit"]] == [[limit] for limit in LIMITS]
    assert tuple(asked["seed"]) == SEEDS
    assert asked["settings"] == {"hidden": (8, 8), "gamma": 0.9}
    assert (asked["evaluate_every"], asked["evaluate_episodes"], asked["out"]) == (100, 5, "toy run")
    assert others == ["pdocrl evaluate 'toy run' --episodes 2", "pdocrl report 'toy run'"]


def test_names_cannot_smuggle_markup_into_the_page(make_run):
    record = read_results(make_run())
    plan = msgspec.structs.replace(
        record.trained.config, data="<script>alert(1)</script>", settings={"<b>": "<i>"}, task=None
    )
    hostile = dataclasses.replace(record, trained=dataclasses.replace(record.trained, config=plan))
    page = Page(report(hostile))
    assert len(page.all("script")) == 2
    assert not page.all("i")


def test_the_command_writes_the_page_and_prints_one_object(make_run, run_cli):
    folder = make_run()
    target = folder.parent / "pages" / "toy.html"
    status, out, err = run_cli("report", folder, "--out", target, "--json")
    answer = json.loads(out)
    assert (status, err, answer["page"], answer["step"]) == (0, "", str(target), 300)
    assert [row["safe"] for row in answer["scores"]] == [True, True]
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "run.json").unlink(), "no run.json here"),
        (lambda folder: (folder / "policies.npz").unlink(), "no policies yet"),
        (lambda folder: (folder / "scores.json").write_text('{"runs": ['), "Make it again: pdocrl evaluate"),
        (
            lambda folder: (folder / "scores.json").write_text('{"runs": []}'),
            "`format` is 0, this version reads",
        ),
        (lambda folder: (folder / "index.html").mkdir(), "is a folder; name the page"),
    ],
)
def test_a_folder_without_a_whole_training_is_one_line_and_status_2(make_run, run_cli, damage, complaint):
    folder = make_run()
    damage(folder)
    status, out, err = run_cli("report", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert not (folder / "index.html").is_file()


def test_an_agent_without_a_density_ratio_has_a_page_without_one(make_run):
    """`pdocrl_anchored` reports `w_max` and `w_share`, which are no density ratio."""
    folder = make_run()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"] = {"w_max": 3.0, "w_share": 0.7, "q": 1.0}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = report(folder, film=False).read_text()
    assert "The density ratio, w" not in text
    assert "The price of cost" not in text


def say(folder: Path, estimated: float, within: bool | None, trusted: bool = True) -> None:
    """Every policy is said to cost `estimated` of its limit."""
    said = {"within_limit": within, "verdict": "said of it", "trusted": trusted}
    said["warnings"] = [] if trusted else ["few rows"]
    runs = [told_run("pdocrl", limit, seed, 0.5, estimated, **said) for limit in LIMITS for seed in SEEDS]
    write_ope(folder, told("Toy", "pdocrl", runs))


def test_estimates_of_0_1_that_have_no_format_number_are_read(make_run):
    folder = make_run()
    say(folder, 0.4, True)
    now = json.loads((folder / "ope.json").read_text())
    assert now.pop("format") == 2
    before = read_ope(folder)
    (folder / "ope.json").write_text(json.dumps(now))
    assert read_ope(folder) == before


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda told: told["runs"][1].update(trusted="very"), "field `runs[1].trusted`: expected `bool`, got `str`"),
        (lambda told: told["runs"][0].update(reward_interval=[0.1]), "field `runs[0].reward_interval`: expected"),
        (lambda told: told.pop("method"), "missing required field `method`"),
        (lambda told: told.update(format=3), "field `format` is 3, this version reads 2"),
        (lambda told: told["runs"].pop(), "holds 3 of 4 runs"),
    ],
)
def test_broken_estimates_are_one_line_that_names_file_and_field(make_run, run_cli, damage, complaint):
    folder = make_run()
    say(folder, 0.4, True)
    told = json.loads((folder / "ope.json").read_text())
    damage(told)
    (folder / "ope.json").write_text(json.dumps(told))
    status, out, err = run_cli("report", folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{folder / 'ope.json'}: " in err
    assert complaint in err
    assert f"Make it again: pdocrl ope {folder}" in err


def test_without_a_simulator_the_page_says_what_the_data_alone_says(make_run):
    folder = make_run()
    (folder / "scores.json").unlink()
    say(folder, 0.4, True)
    page = Page(report(folder))
    assert "Would it be safe? What the data alone says" in page.text
    assert page.text.count("said of it") == len(LIMITS) * len(SEEDS)
    assert "4 of 4 policies are shown to be within their limit" in lead(read_results(folder))


@pytest.mark.parametrize(
    ("estimated", "within", "said"),
    [
        (0.6, True, None),  # played: .5 and 1 of the limit
        (0.6, False, "4 of 4 verdicts are wrong"),
        (4.5, None, "4 of 4 trusted estimates miss by more than the whole limit"),
    ],
)
def test_estimates_that_contradict_the_roll_outs_are_concluded_from(make_run, estimated, within, said):
    folder = make_run()
    say(folder, estimated, within)
    (line,) = [note for note in findings(read_results(folder)) if note.startswith("From the data alone")]
    if said is None:
        assert "contradict" not in line
    else:
        assert f"contradict the roll-outs: {said}. Do not rely on them for this data" in line
    assert "Estimated from the data, and played" in Page(report(folder)).text


@pytest.mark.parametrize(
    ("error", "said"),
    [(RuntimeError("no GL context"), "no GL context"), (NotImplementedError(), "the environment draws nothing")],
)
def test_a_simulator_that_cannot_draw_itself_leaves_a_page_without_film(make_run, monkeypatch, run_cli, error, said):
    from pdocrl.envs import video

    def cannot(*_: object, **__: object) -> None:
        raise error

    folder = make_run()
    monkeypatch.setattr(video, "film", cannot)
    status, out, err = run_cli("report", folder)
    assert (status, out.strip(), err.strip()) == (0, str(folder / "index.html"), f"no film: {said}")
    assert "An episode" not in Page(folder / "index.html").text


def test_limits_asked_stand_against_costs_played(make_run):
    """A policy of one training, asked for limits it was not trained at: the page shows what was asked."""
    folder = make_run()
    scores = read_results(folder).scores
    asked = [
        msgspec.structs.replace(run, cost_limit=[limit], training=run.seed)
        for run in scores.runs[:2]
        for limit in (2.0, 5.0, 8.0)
    ]
    summary = summarise(asked)
    write_record(folder / "scores.json", msgspec.structs.replace(scores, runs=asked, summary=summary))
    record = read_results(folder)
    (one,) = record.summaries
    assert (one.trainings, one.limits) == (2, 3)
    page = report(record, film=False).read_text()
    drawing = next(svg for svg in re.findall(r"<svg.*?</svg>", page) if 'aria-labelledby="asked-cost-0-t"' in svg)
    for limit in (2, 5, 8):
        assert f"pdocrl, limit {limit} asked: cost 0.50" in drawing  # costs 0 and 1, whatever was asked
    assert "--cost-limit 2 5 8" in page
