"""`pdocrl demo`."""

from __future__ import annotations

from pathlib import Path

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
    """Train on the embedded data at cost limits 10, 50 and 80, ask the data, play the policies, write a page.

    Behaviour cloning, which knows no limit, plays the same episodes for comparison. Before anything is played, a
    dynamics model learned from the data predicts whether the policies satisfy their limits. The data ships with the
    package and the networks are small: it takes under two minutes on two cores, without network. Interrupted, the same
    command resumes.

    Example: pdocrl demo --out demo

    Args:
        out: folder for the training and its page, index.html.
        agent: which method; `pdocrl agents` lists them.
        steps: gradient steps of each of the three runs.
        episodes: played by each policy in the end.
        json: print one JSON object.
    """
    from pdocrl.demo import demo as run
    from pdocrl.evaluation.score import limit_name

    log(f"training {agent} at limits 10, 50, 80 for {steps:,} steps …")
    made = run(out, agent, steps, episodes)
    if json:
        others = [as_plain(scores) for scores in made.baselines]
        print_json({**as_plain(made.scores), "baselines": others, "page": str(made.page), "picture": str(made.picture)})
        return
    rows = []
    for scores in (made.scores, *made.baselines):
        for played, score in zip(scores.runs, scores.summary[0].by_limit, strict=True):
            told = "yes" if score.safe else "NO"
            rows.append(
                [
                    played.agent,
                    played.limit,
                    played.reward,
                    score.reward,
                    limit_name(played.cost),
                    score.cost,
                    told,
                ]
            )
    print_table(
        ["agent", "cost limit", "return", "normalised reward", "cost", "cost / limit", "safe"],
        rows,
        title=f"{made.scores.task} (re-collected data), the same {episodes} episodes for each",
    )
    print(f"page: {made.page}")
