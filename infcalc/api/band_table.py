"""Bands of the time model by quantity and class: measured over predicted, low and high. Data, see ``bands``.

Written by ``scripts/serving_bands.py`` from tests/published/serving_measured.yaml; the class without a name is of all.
"""

from typing import Final

BANDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "output_tokens_per_s": {
        "": (0.62, 1.23),
        "AMD and others": (0.39, 1.23),
        "AMD and others, uncalibrated": (0.39, 1.23),
        "AMD and others, uncalibrated, current engine": (0.44, 1.22),
        "NVIDIA MoE": (0.39, 1.55),
        "NVIDIA MoE, calibrated": (0.26, 1.57),
        "NVIDIA MoE, calibrated, current engine": (0.66, 1.56),
        "NVIDIA dense": (0.75, 1.2),
        "NVIDIA dense, calibrated": (0.74, 1.18),
        "NVIDIA dense, calibrated, current engine": (0.75, 1.15),
        "NVIDIA dense, calibrated, earlier engine": (0.67, 1.25),
        "NVIDIA dense, uncalibrated": (0.79, 1.25),
        "NVIDIA dense, uncalibrated, current engine": (0.78, 1.16),
        "NVIDIA dense, uncalibrated, earlier engine": (0.78, 1.4),
        "burst": (0.48, 1.05),
    },
    "tpot_s": {
        "": (0.8, 1.75),
        "NVIDIA MoE": (0.87, 1.4),
        "NVIDIA MoE, calibrated": (0.87, 1.4),
        "NVIDIA dense": (0.85, 1.08),
        "NVIDIA dense, calibrated": (0.85, 1.08),
        "burst": (0.38, 2.18),
        "burst, calibrated": (0.38, 2.2),
    },
    "tpot_s at a rate": {
        "": (0.95, 1.36),
        "NVIDIA dense": (0.95, 1.34),
        "NVIDIA dense, calibrated": (0.95, 1.52),
    },
    "ttft_s": {
        "": (0.83, 3.09),
        "NVIDIA MoE": (0.84, 10.9),
        "NVIDIA MoE, calibrated": (0.84, 10.9),
        "NVIDIA dense": (0.83, 1.89),
        "NVIDIA dense, calibrated": (0.85, 1.9),
        "NVIDIA dense, calibrated, earlier engine": (0.85, 1.41),
        "burst": (0.84, 4.0),
        "burst, calibrated": (0.87, 4.46),
    },
    "ttft_s at a rate": {
        "": (0.46, 4.68),
        "NVIDIA dense": (0.46, 5.8),
        "NVIDIA dense, calibrated": (0.87, 19.5),
    },
}
