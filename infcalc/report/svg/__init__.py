"""Drawings as SVG, without any library: elements, scales, axes, and a module for each picture of a capacity review."""
