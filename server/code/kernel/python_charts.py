# SPDX-License-Identifier: Apache-2.0
# The last part of the kernel program of python: the data behind a figure, in the form that E2B's clients know as `chart`.

POINTS_MAX = 10000


def number(value):
    value = float(value)
    return value if value == value and abs(value) != float("inf") else None


def ticks(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return [number(tick) for tick in axis.get_ticklocs()], labels


def scale_of(axis, values):
    import datetime
    dates = sys.modules.get("matplotlib.dates")
    if dates is not None and isinstance(axis.converter, tuple(
            kind for kind in (getattr(dates, "DateConverter", None), getattr(dates, "_SwitchableDateConverter", None),
                              getattr(dates, "ConciseDateConverter", None)) if kind)):
        return "datetime"
    if values and isinstance(values[0], (datetime.date, datetime.datetime)):
        return "datetime"
    if values and isinstance(values[0], str):
        return "categorical"
    return axis.get_scale()


def points_of(xs, ys):
    points = []
    for x, y in list(zip(xs, ys))[:POINTS_MAX]:
        x = x if isinstance(x, str) else x.isoformat() if hasattr(x, "isoformat") else \
            str(x) if type(x).__name__ == "datetime64" else number(x)
        points.append([x, number(y)])
    return points


def lines_of(axes):
    return [{"label": str(line.get_label()), "points": points_of(list(line.get_xdata()), list(line.get_ydata()))}
            for line in axes.get_lines()]


def scatter_of(axes):
    elements = []
    for group in axes.collections:
        where = group.get_offsets()
        elements.append({"label": str(group.get_label()), "points": points_of([p[0] for p in where], [p[1] for p in where])})
    return elements


def bars_of(axes):
    elements = []
    for group in axes.containers:
        upright = getattr(group, "orientation", "vertical") == "vertical"
        where, names = ticks(axes.xaxis if upright else axes.yaxis)
        named = dict(zip(where, names))
        for bar in group.patches:
            middle = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
            elements.append({"label": named.get(middle) or str(round(middle, 6)), "group": str(group.get_label()),
                             "value": number(bar.get_height() if upright else bar.get_width())})
    return elements


def pie_of(axes, wedges):
    labels = [text.get_text() for text in axes.texts if text.get_text()]
    names = labels[::2] if len(labels) == 2 * len(wedges) else labels
    return [{"label": names[i] if i < len(names) else wedge.get_label(), "angle": number(abs(wedge.theta2 - wedge.theta1)),
             "radius": number(wedge.r)} for i, wedge in enumerate(wedges)]


def boxes_of(axes):
    boxes = []
    lines = axes.get_lines()
    size = 7 if len(lines) % 7 == 0 and len(lines) % 6 != 0 else 6
    for i in range(0, len(lines) - size + 1, size):
        # the order of Axes.bxp: box, two whiskers, two caps, median, fliers
        box = [number(y) for y in lines[i].get_ydata()]
        ends = [number(lines[i + k].get_ydata()[1]) for k in (1, 2)]
        median = number(lines[i + 5].get_ydata()[0])
        fliers = [number(y) for y in lines[i + 6].get_ydata()] if size == 7 else []
        boxes.append({"label": str(len(boxes) + 1), "min": min(ends), "first_quartile": min(box), "median": median,
                      "third_quartile": max(box), "max": max(ends), "outliers": fliers})
    return boxes


def kind_of(axes):
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    if wedges:
        return "pie", pie_of(axes, wedges)
    if any(isinstance(group, BarContainer) for group in axes.containers):
        return "bar", bars_of(axes)
    lines = axes.get_lines()
    if len(lines) >= 6 and len(lines[0].get_xdata()) in (5, 2) and all(len(line.get_xdata()) == 2 for line in lines[1:5]):
        return "box_and_whisker", boxes_of(axes)
    if axes.collections and not lines:
        return "scatter", scatter_of(axes)
    if lines:
        return "line", lines_of(axes)
    return "unknown", []


def one_chart(axes):
    kind, elements = kind_of(axes)
    chart = {"type": kind, "title": axes.get_title(), "elements": elements}
    if kind in ("line", "scatter"):
        first = elements[0]["points"] if elements else []
        for letter, axis, at in (("x", axes.xaxis, 0), ("y", axes.yaxis, 1)):
            where, names = ticks(axis)
            chart.update({f"{letter}_ticks": where, f"{letter}_tick_labels": names,
                          f"{letter}_scale": scale_of(axis, [point[at] for point in first])})
    if kind != "pie":
        for letter, label in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
            unit = label[label.rindex("(") + 1:-1] if label.endswith(")") and "(" in label else None
            chart.update({f"{letter}_label": label or None, f"{letter}_unit": unit})
    return chart


def chart_of(figure):
    charts = [one_chart(axes) for axes in figure.get_axes()]
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) is not None else ""
    return {"type": "superchart", "title": title, "elements": charts} if charts else None
