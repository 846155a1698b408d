"""`pdocrl demo`."""

from __future__ import annotations

from pathlib import Path

from pdocrl.commands.words import shown
from pdocrl.console import log, print_json, print_table
from pdocrl.records import as_plain


def demo(
    *,
    out: Path = Path("demo"),
    agent: str = "dial",
    steps: int = 6_000,
    episodes: int = 20,
    json: bool = False,
) -> None:
    """Train on the embedded data at cost limits 10, 50 and 80, play the policies in the simulator, write a page.

    The data ships with the package and the networks are small: it takes a minute or two on two cores, without network.
    Interrupted, the same command goes on where it stopped.

    Example: pdocrl demo --out demo

    Args:
        out: folder for the training and its page, index.html.
        agent: which method; `pdocrl agents` lists them.
        steps: gradient steps of each of the three runs.
        episodes: played by each policy in the end.
        json: print one JSON object.
    """
    from pdocrl.demo import demo as run

    log(f"training {agent} at limits 10, 50, 80 for {steps:,} steps …")
    made = run(out, agent, steps, episodes)
    if json:
        print_json({**as_plain(made.scores), "page": str(made.page), "picture": str(made.picture)})
        return
    print_table(
        ["cost limit", "return", "normalised reward", "95 %", "cost", "cost / limit", "safe"],
        [[shown(played.cost_limit), played.reward, score.reward, score.words("reward"), shown(played.cost), score.cost,
          "yes" if score.safe else "NO"]
         for played, score in zip(made.scores.runs, made.scores.summary[0].score.by_limit, strict=True)],
        title=f"{agent} on {made.scores.task} (re-collected data), {episodes} episodes each",
    )  # fmt: skip
    print(f"page: {made.page}")
