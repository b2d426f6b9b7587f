"""Bands of the time model by quantity and class: measured over predicted, low and high. Data, see ``bands``.

Written by ``scripts/serving_bands.py`` from tests/published/serving_measured.yaml; the class without a name is of all.
"""

from typing import Final

BANDS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "output_tokens_per_s": {
        "": (0.57, 1.24),
        "AMD and others": (0.19, 1.24),
        "AMD and others, uncalibrated": (0.19, 1.24),
        "NVIDIA MoE": (0.58, 1.44),
        "NVIDIA MoE, calibrated": (0.58, 1.41),
        "NVIDIA MoE, calibrated, current engine": (0.62, 1.42),
        "NVIDIA dense": (0.75, 1.19),
        "NVIDIA dense, calibrated": (0.72, 1.18),
        "NVIDIA dense, calibrated, current engine": (0.71, 1.18),
        "NVIDIA dense, calibrated, earlier engine": (0.68, 1.23),
        "NVIDIA dense, uncalibrated": (0.78, 1.21),
        "NVIDIA dense, uncalibrated, current engine": (0.78, 1.16),
        "NVIDIA dense, uncalibrated, earlier engine": (0.57, 1.39),
        "burst": (0.48, 1.05),
    },
    "tpot_s": {
        "": (0.83, 1.89),
        "NVIDIA MoE": (0.82, 1.58),
        "NVIDIA MoE, calibrated": (0.83, 1.5),
        "NVIDIA dense": (0.91, 1.69),
        "NVIDIA dense, calibrated": (0.91, 1.89),
        "NVIDIA dense, calibrated, current engine": (0.94, 2.21),
        "burst": (0.38, 2.37),
        "burst, calibrated": (0.37, 2.38),
    },
    "ttft_s": {
        "": (0.85, 2.95),
        "NVIDIA MoE": (0.95, 5.6),
        "NVIDIA MoE, calibrated": (0.95, 5.6),
        "NVIDIA dense": (0.84, 2.0),
        "NVIDIA dense, calibrated": (0.85, 1.77),
        "NVIDIA dense, calibrated, earlier engine": (0.85, 1.54),
        "burst": (0.87, 3.14),
        "burst, calibrated": (0.89, 3.69),
    },
    "ttft_s at a rate": {
        "": (0.4, 11.01),
        "NVIDIA dense": (0.46, 11.19),
        "NVIDIA dense, calibrated": (0.9, 22.3),
    },
}
