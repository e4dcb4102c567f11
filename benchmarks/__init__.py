"""Side-by-side runs: pinfold, the plain thing beside it, and peers. They report, they never gate.

python -m benchmarks                       every bench, as a Markdown table
python -m benchmarks peek set --json       some of them, as JSON
"""
