"""Bands of the time model by quantity and class: measured over predicted, low and high. Data, see ``bands``.

Written by ``scripts/serving_bands.py`` from tests/published/serving_measured.yaml; the class without a name is of all.
"""

from typing import Final

BANDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "output_tokens_per_s": {
        "": (0.62, 1.23),
        "AMD and others": (0.39, 1.23),
        "AMD and others, uncalibrated": (0.39, 1.23),
        "AMD and others, uncalibrated, current engine": (0.49, 1.22),
        "NVIDIA MoE": (0.49, 1.5),
        "NVIDIA MoE, calibrated": (0.31, 1.53),
        "NVIDIA MoE, calibrated, current engine": (0.66, 1.52),
        "NVIDIA dense": (0.75, 1.22),
        "NVIDIA dense, calibrated": (0.74, 1.19),
        "NVIDIA dense, calibrated, current engine": (0.77, 1.17),
        "NVIDIA dense, calibrated, earlier engine": (0.66, 1.27),
        "NVIDIA dense, uncalibrated": (0.78, 1.26),
        "NVIDIA dense, uncalibrated, current engine": (0.78, 1.16),
        "NVIDIA dense, uncalibrated, earlier engine": (0.77, 1.39),
        "burst": (0.51, 1.05),
    },
    "tpot_s": {
        "": (0.8, 1.8),
        "NVIDIA MoE": (0.86, 1.49),
        "NVIDIA MoE, calibrated": (0.86, 1.49),
        "NVIDIA dense": (0.85, 1.09),
        "NVIDIA dense, calibrated": (0.85, 1.09),
        "burst": (0.39, 2.34),
        "burst, calibrated": (0.38, 2.37),
    },
    "tpot_s at a rate": {
        "": (0.95, 1.4),
        "NVIDIA dense": (0.95, 1.35),
        "NVIDIA dense, calibrated": (0.95, 1.6),
    },
    "ttft_s": {
        "": (0.75, 3.62),
        "NVIDIA MoE": (0.01, 50.85),
        "NVIDIA MoE, calibrated": (0.01, 50.85),
        "NVIDIA dense": (0.75, 1.75),
        "NVIDIA dense, calibrated": (0.84, 1.93),
        "NVIDIA dense, calibrated, earlier engine": (0.85, 1.37),
        "burst": (0.88, 3.52),
        "burst, calibrated": (0.95, 4.08),
    },
    "ttft_s at a rate": {
        "": (0.7, 3.91),
        "NVIDIA dense": (0.7, 4.42),
        "NVIDIA dense, calibrated": (0.9, 22.67),
    },
}
