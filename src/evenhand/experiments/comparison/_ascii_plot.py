"""Plot differences as text."""

from collections.abc import Callable, Sequence

from evenhand.runs.comparison_schemas import Difference


def plot_differences(differences: Sequence[Difference], width: int = 72) -> list[str]:
    r"""Plot the primary differences with their intervals, the zero line and the margin.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison._ascii_plot import plot_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> print("\n".join(plot_differences(judge_differences({"balanced_accuracy": values}, "ce"), 60)))
        cce  :             |            :     [--------o-----------]
        cot  :   [---------+--------o---:---------]
             -1            0           +1
        o difference, [ ] 95% CI, | zero (+ within a CI), : margin of 1 pp
    """
    shown = [each for each in differences if each.metric == differences[0].metric]
    ends = [
        end for each in shown for end in (each.mean, each.low, each.high, -each.margin, each.margin) if end is not None
    ]
    names = max(len(each.objective) for each in shown)
    columns = max(20, width - names - 2)
    low, high = min(ends), max(ends)

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (columns - 1))

    lines = []
    for each in shown:
        row = [" "] * columns
        for line, sign in ((-each.margin, ":"), (each.margin, ":"), (0.0, "|")):
            row[place(line)] = sign
        if each.low is not None and each.high is not None:
            for column in range(place(each.low), place(each.high) + 1):
                row[column] = "-" if row[column] == " " else "+" if row[column] == "|" else row[column]
            row[place(each.low)], row[place(each.high)] = "[", "]"
        row[place(each.mean)] = "o"
        lines.append(f"{each.objective:<{names}}  {''.join(row).rstrip()}")
    legend = f"o difference, [ ] 95% CI, | zero (+ within a CI), : margin of {100 * shown[0].margin:g} pp"
    return [*lines, f"{'':<{names}}  {_scale(shown[0].margin, place, columns)}", legend]


def _scale(margin: float, place: Callable[[float], int], columns: int) -> str:
    """Return the labels of zero and of both ends of the margin, where there is room between them."""
    labels = [(place(value), f"{100 * value:+g}" if value else "0") for value in (-margin, 0.0, margin)]
    if place(margin) - place(-margin) < sum(len(text) for _, text in labels) + 1:
        labels = [labels[1]]
    scale = [" "] * columns
    for middle, text in labels:
        start = min(max(0, middle - len(text) // 2), columns - len(text))
        scale[start : start + len(text)] = text
    return "".join(scale).rstrip()
