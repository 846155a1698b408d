"""The numbers papers print, in one place: the results and the ablation of ours, and those of newer methods.

The paper took its baselines from the benchmark's own publication (protocol `dsrl`), and states limits of 20, 40 and 80
for its own method (protocol `paper`). CAPS: tables 3 and 4 of its supplement, two heads; BCRL: its table 1; both by
protocol `dsrl`. All were learned from the published data files.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Published:
    """Normalised reward and cost: mean and, where printed, standard deviation over limits × seeds."""

    reward: float
    reward_std: float | None
    cost: float
    cost_std: float | None

    @property
    def safe(self) -> bool:
        return self.cost <= 1


AVERAGE = "Average"  # the tables' last line, over all eight tasks
_TASKS = ("BallRun", "CarRun", "DroneRun", "AntRun", "BallCircle", "CarCircle", "DroneCircle", "AntCircle", AVERAGE)
_PRINTED = """\
bc                 0.60±0.10  0.97±0.02  0.24±0.02  0.72±0.06  0.74±0.15  0.58±0.25  0.72±0.04  0.58±0.19  0.64±0.25
                   5.08±0.74  0.33±0.05  2.13±0.62  2.93±2.40  4.71±1.79  3.74±2.20  3.03±0.29  4.90±3.55  3.36±3.31
bc-safe            0.27±0.14  0.94±0.00  0.28±0.25  0.65±0.15  0.52±0.08  0.50±0.22  0.56±0.18  0.40±0.16  0.52±0.27
                   1.46±0.39  0.22±0.02  0.74±0.97  1.09±0.84  0.65±0.17  0.84±0.67  0.57±0.27  0.96±2.67  0.82±1.27
cdt                0.39±0.09  0.99±0.01  0.63±0.04  0.72±0.04  0.77±0.06  0.75±0.06  0.63±0.07  0.54±0.20  0.68±0.19
                   1.16±0.19  0.65±0.31  0.79±0.68  0.91±0.42  1.07±0.27  0.95±0.61  0.98±0.27  1.78±4.33  1.04±1.65
bcq_lag            0.76±0.01  0.94±0.01  0.72±0.12  0.76±0.07  0.69±0.11  0.63±0.19  0.80±0.07  0.58±0.25  0.74±0.25
                   3.91±0.35  0.15±0.91  5.54±0.81  5.11±2.39  2.36±1.04  1.89±1.37  3.07±0.89  2.87±3.08  3.11±3.55
bear_lag          -0.47±0.00  0.68±0.01  0.42±0.10  0.15±0.02  0.86±0.18  0.74±0.10  0.78±0.04  0.65±0.20  0.48±0.27
                   5.03±0.00  7.78±0.09  2.47±0.34  0.73±0.07  3.09±1.53  2.18±1.33  3.68±0.44  5.48±3.33  3.80±3.95
cpq                0.22±0.00  0.95±0.01  0.33±0.10  0.03±0.02  0.64±0.01  0.71±0.02 -0.22±0.05  0.00±0.00  0.33±0.29
                   1.27±0.12  1.79±0.18  3.52±0.58  0.02±0.09  0.76±0.00  0.33±0.00  1.28±0.97  0.00±0.00  1.12±1.85
coptidice          0.59±0.00  0.87±0.00  0.67±0.02  0.61±0.01  0.70±0.04  0.49±0.05  0.26±0.03  0.17±0.10  0.55±0.24
                   3.52±0.00  0.00±0.00  4.15±0.10  0.94±0.69  2.61±0.79  3.14±2.98  1.02±0.46  5.04±6.74  2.55±3.62
pdocrl             0.48±0.33  0.80±0.08  0.10±0.15  0.03±0.02  0.61±0.15  0.63±0.05 -0.26±0.00  0.00±0.00  0.30±0.38
                   0.86±0.82  0.11±0.15  0.84±1.01  0.00±0.00  0.21±0.31  0.11±0.21  0.26±0.39  0.00±0.00  0.30±0.60
pdocrl_extraction -1.06±0.15 -0.59±0.26 -0.26±0.09  0.21±0.06  0.01±0.04 -0.04±0.05 -0.11±0.13  0.06±0.02 -0.22±0.41
                   2.69±1.44  4.63±2.51  0.35±1.00  0.01±0.02  2.19±2.92  3.87±4.65  1.30±0.60  0.65±0.35  1.96±2.74
caps_iql                0.19       0.97       0.47       0.61       0.69       0.69       0.55       0.41       0.57
                        0.94       0.25       2.19       0.90       0.59       0.65       0.67       0.15       0.79
caps_sac                0.24       0.97       0.54       0.53       0.59       0.61       0.42       0.47       0.55
                        0.60       0.00       0.39       0.25       0.19       0.29       0.14       0.42       0.29
bcrl               0.20±0.02  0.98±0.01  0.58±0.03  0.68±0.11  0.69±0.11  0.53±0.17  0.42±0.12  0.56±0.17  0.58±0.09
                   0.06±0.10  0.98±0.72  0.54±0.91  0.95±0.29  0.97±0.27  0.51±0.51  0.52±0.32  0.79±0.60  0.67±0.46
"""


def _read(printed: str) -> dict[str, dict[str, Published]]:
    """{method: {task: what is printed}}, from two lines a method: rewards, then costs."""
    lines = [line.split() for line in printed.splitlines()]
    found: dict[str, dict[str, Published]] = {}
    for (method, *rewards), costs in zip(lines[::2], lines[1::2], strict=True):
        pairs = zip(_TASKS, rewards, costs, strict=True)
        found[method] = {task: Published(*_spread(reward), *_spread(cost)) for task, reward, cost in pairs}
    return found


def _spread(text: str) -> tuple[float, float | None]:
    mean, _, std = text.partition("±")
    return float(mean), float(std) if std else None


PUBLISHED = _read(_PRINTED)


AS_PUBLISHED = ("published", "by-cost")  # variants that do what is published stand beside their agent's numbers


def published(method: str, task: str) -> Published | None:
    """What is printed for a method (agent, or agent-variant) on a task, if anything."""
    agent, _, variant = method.partition("-")
    known = PUBLISHED.get(agent if variant.startswith(AS_PUBLISHED) else method, {})
    return known.get(task)
