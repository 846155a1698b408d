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

PUBLISHED: dict[str, dict[str, Published]] = {  # method → task → what is printed
    "bc": {
        "BallRun": Published(0.60, 0.10, 5.08, 0.74),
        "CarRun": Published(0.97, 0.02, 0.33, 0.05),
        "DroneRun": Published(0.24, 0.02, 2.13, 0.62),
        "AntRun": Published(0.72, 0.06, 2.93, 2.40),
        "BallCircle": Published(0.74, 0.15, 4.71, 1.79),
        "CarCircle": Published(0.58, 0.25, 3.74, 2.20),
        "DroneCircle": Published(0.72, 0.04, 3.03, 0.29),
        "AntCircle": Published(0.58, 0.19, 4.90, 3.55),
        "Average": Published(0.64, 0.25, 3.36, 3.31),
    },
    "bc-safe": {
        "BallRun": Published(0.27, 0.14, 1.46, 0.39),
        "CarRun": Published(0.94, 0.00, 0.22, 0.02),
        "DroneRun": Published(0.28, 0.25, 0.74, 0.97),
        "AntRun": Published(0.65, 0.15, 1.09, 0.84),
        "BallCircle": Published(0.52, 0.08, 0.65, 0.17),
        "CarCircle": Published(0.50, 0.22, 0.84, 0.67),
        "DroneCircle": Published(0.56, 0.18, 0.57, 0.27),
        "AntCircle": Published(0.40, 0.16, 0.96, 2.67),
        "Average": Published(0.52, 0.27, 0.82, 1.27),
    },
    "cdt": {
        "BallRun": Published(0.39, 0.09, 1.16, 0.19),
        "CarRun": Published(0.99, 0.01, 0.65, 0.31),
        "DroneRun": Published(0.63, 0.04, 0.79, 0.68),
        "AntRun": Published(0.72, 0.04, 0.91, 0.42),
        "BallCircle": Published(0.77, 0.06, 1.07, 0.27),
        "CarCircle": Published(0.75, 0.06, 0.95, 0.61),
        "DroneCircle": Published(0.63, 0.07, 0.98, 0.27),
        "AntCircle": Published(0.54, 0.20, 1.78, 4.33),
        "Average": Published(0.68, 0.19, 1.04, 1.65),
    },
    "bcq_lag": {
        "BallRun": Published(0.76, 0.01, 3.91, 0.35),
        "CarRun": Published(0.94, 0.01, 0.15, 0.91),
        "DroneRun": Published(0.72, 0.12, 5.54, 0.81),
        "AntRun": Published(0.76, 0.07, 5.11, 2.39),
        "BallCircle": Published(0.69, 0.11, 2.36, 1.04),
        "CarCircle": Published(0.63, 0.19, 1.89, 1.37),
        "DroneCircle": Published(0.80, 0.07, 3.07, 0.89),
        "AntCircle": Published(0.58, 0.25, 2.87, 3.08),
        "Average": Published(0.74, 0.25, 3.11, 3.55),
    },
    "bear_lag": {
        "BallRun": Published(-0.47, 0.00, 5.03, 0.00),
        "CarRun": Published(0.68, 0.01, 7.78, 0.09),
        "DroneRun": Published(0.42, 0.10, 2.47, 0.34),
        "AntRun": Published(0.15, 0.02, 0.73, 0.07),
        "BallCircle": Published(0.86, 0.18, 3.09, 1.53),
        "CarCircle": Published(0.74, 0.10, 2.18, 1.33),
        "DroneCircle": Published(0.78, 0.04, 3.68, 0.44),
        "AntCircle": Published(0.65, 0.20, 5.48, 3.33),
        "Average": Published(0.48, 0.27, 3.80, 3.95),
    },
    "cpq": {
        "BallRun": Published(0.22, 0.00, 1.27, 0.12),
        "CarRun": Published(0.95, 0.01, 1.79, 0.18),
        "DroneRun": Published(0.33, 0.10, 3.52, 0.58),
        "AntRun": Published(0.03, 0.02, 0.02, 0.09),
        "BallCircle": Published(0.64, 0.01, 0.76, 0.00),
        "CarCircle": Published(0.71, 0.02, 0.33, 0.00),
        "DroneCircle": Published(-0.22, 0.05, 1.28, 0.97),
        "AntCircle": Published(0.00, 0.00, 0.00, 0.00),
        "Average": Published(0.33, 0.29, 1.12, 1.85),
    },
    "coptidice": {
        "BallRun": Published(0.59, 0.00, 3.52, 0.00),
        "CarRun": Published(0.87, 0.00, 0.00, 0.00),
        "DroneRun": Published(0.67, 0.02, 4.15, 0.10),
        "AntRun": Published(0.61, 0.01, 0.94, 0.69),
        "BallCircle": Published(0.70, 0.04, 2.61, 0.79),
        "CarCircle": Published(0.49, 0.05, 3.14, 2.98),
        "DroneCircle": Published(0.26, 0.03, 1.02, 0.46),
        "AntCircle": Published(0.17, 0.10, 5.04, 6.74),
        "Average": Published(0.55, 0.24, 2.55, 3.62),
    },
    "pdocrl": {
        "BallRun": Published(0.48, 0.33, 0.86, 0.82),
        "CarRun": Published(0.80, 0.08, 0.11, 0.15),
        "DroneRun": Published(0.10, 0.15, 0.84, 1.01),
        "AntRun": Published(0.03, 0.02, 0.00, 0.00),
        "BallCircle": Published(0.61, 0.15, 0.21, 0.31),
        "CarCircle": Published(0.63, 0.05, 0.11, 0.21),
        "DroneCircle": Published(-0.26, 0.00, 0.26, 0.39),
        "AntCircle": Published(0.00, 0.00, 0.00, 0.00),
        "Average": Published(0.30, 0.38, 0.30, 0.60),
    },
    "pdocrl_extraction": {
        "BallRun": Published(-1.06, 0.15, 2.69, 1.44),
        "CarRun": Published(-0.59, 0.26, 4.63, 2.51),
        "DroneRun": Published(-0.26, 0.09, 0.35, 1.00),
        "AntRun": Published(0.21, 0.06, 0.01, 0.02),
        "BallCircle": Published(0.01, 0.04, 2.19, 2.92),
        "CarCircle": Published(-0.04, 0.05, 3.87, 4.65),
        "DroneCircle": Published(-0.11, 0.13, 1.30, 0.60),
        "AntCircle": Published(0.06, 0.02, 0.65, 0.35),
        "Average": Published(-0.22, 0.41, 1.96, 2.74),
    },
    "caps_iql": {
        "BallRun": Published(0.19, None, 0.94, None),
        "CarRun": Published(0.97, None, 0.25, None),
        "DroneRun": Published(0.47, None, 2.19, None),
        "AntRun": Published(0.61, None, 0.90, None),
        "BallCircle": Published(0.69, None, 0.59, None),
        "CarCircle": Published(0.69, None, 0.65, None),
        "DroneCircle": Published(0.55, None, 0.67, None),
        "AntCircle": Published(0.41, None, 0.15, None),
        "Average": Published(0.57, None, 0.79, None),
    },
    "caps_sac": {
        "BallRun": Published(0.24, None, 0.60, None),
        "CarRun": Published(0.97, None, 0.00, None),
        "DroneRun": Published(0.54, None, 0.39, None),
        "AntRun": Published(0.53, None, 0.25, None),
        "BallCircle": Published(0.59, None, 0.19, None),
        "CarCircle": Published(0.61, None, 0.29, None),
        "DroneCircle": Published(0.42, None, 0.14, None),
        "AntCircle": Published(0.47, None, 0.42, None),
        "Average": Published(0.55, None, 0.29, None),
    },
    "bcrl": {
        "BallRun": Published(0.20, 0.02, 0.06, 0.10),
        "CarRun": Published(0.98, 0.01, 0.98, 0.72),
        "DroneRun": Published(0.58, 0.03, 0.54, 0.91),
        "AntRun": Published(0.68, 0.11, 0.95, 0.29),
        "BallCircle": Published(0.69, 0.11, 0.97, 0.27),
        "CarCircle": Published(0.53, 0.17, 0.51, 0.51),
        "DroneCircle": Published(0.42, 0.12, 0.52, 0.32),
        "AntCircle": Published(0.56, 0.17, 0.79, 0.60),
        "Average": Published(0.58, 0.09, 0.67, 0.46),
    },
}


def published(method: str, task: str) -> Published | None:
    """What is printed for a method (agent, or agent-variant) on a task, if anything."""
    return PUBLISHED.get(method, {}).get(task)
