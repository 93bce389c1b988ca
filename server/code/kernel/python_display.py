# SPDX-License-Identifier: Apache-2.0
# The second part of the kernel program of python: values become results by MIME type, figures become pictures.

RESULT_MAX = 16 * 1024 * 1024  # bytes of one form of a result
METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
BINARY = ("image/png", "image/jpeg", "application/pdf")
DATA, CHART = "e2b/data", "e2b/chart"


def plain(value):
    try:
        return repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{type(value).__name__} object: its repr() raised {type(error).__name__}: {error}>"


def methods_of(value):
    if isinstance(value, type):
        return {}
    kind = type(value)
    found = {}
    for mime, name in METHODS:
        method = getattr(kind, name, None)
        if method is None or not callable(method):
            continue
        try:
            form = getattr(value, name)()
        except KeyboardInterrupt:
            raise
        except Exception:
            continue
        if isinstance(form, tuple):
            form = form[0]
        if form is not None:
            found[mime] = form
    bundle = getattr(kind, "_repr_mimebundle_", None)
    if callable(bundle):
        try:
            forms = value._repr_mimebundle_()
            found.update(forms[0] if isinstance(forms, tuple) else forms or {})
        except KeyboardInterrupt:
            raise
        except Exception:
            pass
    return found


def data_of(frame):
    """A DataFrame as the lists of its columns."""
    import json
    if len(frame) > 10000:
        return None
    try:
        return json.loads(frame.to_json(orient="split", date_format="iso"))
    except Exception:
        return None


def bundle_of(value):
    figures = sys.modules.get("matplotlib.figure")
    if figures is not None and isinstance(value, figures.Figure):
        return figure_bundle(value)
    bundle = methods_of(value)
    if K.shell and "text/plain" not in bundle:
        try:
            bundle["text/plain"] = K.shell.display_formatter.formatters["text/plain"](value)
        except KeyboardInterrupt:
            raise
        except Exception:
            pass
    if bundle.get("text/plain") is None:
        bundle["text/plain"] = plain(value)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ())):
        split = data_of(value)
        if split is not None:
            bundle[DATA] = {str(name): [row[i] for row in split["data"]] for i, name in enumerate(split["columns"])}
    return bundle


def bytes_of(mime, form):
    if mime in BINARY and isinstance(form, str):
        import base64
        return base64.b64decode(form)
    if isinstance(form, (bytes, bytearray)):
        return bytes(form)
    if isinstance(form, str):
        return form.encode("utf-8", "replace")
    import json
    return json.dumps(form, default=str).encode()


def is_mime(text):
    return isinstance(text, str) and 0 < len(text) <= 100 and "/" in text and all(
        c.isascii() and (c.isalnum() or c in "/+.-_") for c in text)


def send_bundle(bundle, main):
    """One result: each form in frames of bounded size. Flags: m main, + more of this form follows, . the last frame."""
    forms = []
    for mime, form in bundle.items():
        if not is_mime(mime) or form is None:
            continue
        data = bytes_of(mime, form)
        if mime == "text/plain" and len(data) > TEXT_MAX:
            data = data[:TEXT_MAX].decode("utf-8", "ignore").encode() + b" ..."
        if len(data) > RESULT_MAX:
            if mime == "text/plain":
                continue
            forms.append(("text/plain", f"<{mime} of {len(data)} bytes: too large to show>".encode()))
            continue
        forms.append((mime, data))
    kind = "m" if main else "d"
    for i, (mime, data) in enumerate(forms):
        parts = range(0, max(len(data), 1), FRAME_MAX)
        for at in parts:
            more = at + FRAME_MAX < len(data)
            end = i == len(forms) - 1 and not more
            send("result", data[at:at + FRAME_MAX], kind + ("+" if more else "") + ("." if end else ""), mime)


def show(value, main):
    send_bundle(bundle_of(value), main)


def display(*values, raw=False, **rest):
    """Shows values: like IPython's function of this name."""
    flush_streams()
    for value in values:
        if raw and isinstance(value, dict):
            send_bundle(value, main=False)
        else:
            show(value, main=False)


# ---- figures


def figure_bundle(figure):
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    bundle = {"image/png": picture.getvalue(), "text/plain": repr(figure)}
    try:
        chart = chart_of(figure)
        if chart is not None:
            bundle[CHART] = chart
    except KeyboardInterrupt:
        raise
    except Exception:
        pass
    return bundle


def show_figures():
    """Shows and closes the figures that the cell has made."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        flush_streams()
        figure = pyplot.figure(number)
        if figure.get_axes():
            show(figure, main=False)
    pyplot.close("all")


def make_backend():
    """The module that matplotlib finds as module://stockade_figures. It is filled in when it is imported."""

    class Backend(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            from matplotlib.backend_bases import FigureManagerBase
            from matplotlib.backends.backend_agg import FigureCanvasAgg

            class FigureCanvas(FigureCanvasAgg):
                manager_class = FigureManagerBase

            self.__dict__.update(FigureCanvas=FigureCanvas, FigureCanvasAgg=FigureCanvas, FigureManager=FigureManagerBase,
                                 show=lambda *args, **rest: show_figures())
            if name in self.__dict__:
                return self.__dict__[name]
            raise AttributeError(name)

    sys.modules["stockade_figures"] = Backend("stockade_figures")


make_backend()
