//! Shapes of SVG with rounded coordinates. A drawing is made for a width; a page holds one for wide windows and one for
//! narrow ones, because a drawing that shrinks takes its letters with it.

use super::markup::Markup;

/// A place in a drawing, in its own units, y downwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A rectangle by its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Where a text stands relative to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// For what window a drawing is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// For windows of 900 px and more.
    Wide,
    /// For windows of less than 900 px.
    Narrow,
}

/// The description of a drawing for screen readers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caption<'a> {
    /// The name of the drawing.
    pub(super) title: &'a str,
    /// What it shows, and where the figures stand as text.
    pub(super) desc: &'a str,
}

/// The content of a drawing.
#[derive(Debug, Default)]
pub(super) struct Svg(Markup);

/// Short for a place.
pub(super) fn at(x: f64, y: f64) -> Point {
    Point { x, y }
}

impl Frame {
    /// Both, in the order in which they stand in the page.
    pub(super) const BOTH: [Frame; 2] = [Frame::Wide, Frame::Narrow];

    /// The drawing's width in its own units, which are CSS pixels where the window fits.
    pub(super) fn width(self) -> f64 {
        match self {
            Frame::Wide => 1120.0,
            Frame::Narrow => 380.0,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Frame::Wide => "plot wide",
            Frame::Narrow => "plot narrow",
        }
    }
}

impl Svg {
    /// A drawing without content.
    pub(super) fn new() -> Svg {
        Svg::default()
    }

    /// The drawing as an element of the page.
    pub(super) fn finish(self, frame: Frame, height: f64, caption: Caption) -> Markup {
        let view_box = format!("0 0 {} {}", number(frame.width()), number(height));
        let mut m = Markup::new();
        m.within("svg", &[("class", frame.class()), ("viewBox", &view_box), ("role", "img")], |m| {
            m.leaf("title", &[], caption.title);
            m.leaf("desc", &[], caption.desc);
            m.append(&self.0);
        });
        m
    }

    /// A group with what `fill` draws.
    pub(super) fn group(&mut self, attrs: &[(&'static str, &str)], fill: impl FnOnce(&mut Svg)) {
        self.0.within("g", attrs, |m| {
            let mut inner = Svg::new();
            fill(&mut inner);
            m.append(&inner.0);
        });
    }

    /// What a pointer resting on the group shows.
    pub(super) fn tooltip(&mut self, text: &str) {
        self.0.leaf("title", &[], text);
    }

    /// Draws a straight line.
    pub(super) fn line(&mut self, class: &str, from: Point, to: Point) {
        let (x1, y1, x2, y2) = (number(from.x), number(from.y), number(to.x), number(to.y));
        self.0.empty("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
    }

    /// A rectangle; a negative size is drawn as none.
    pub(super) fn rect(&mut self, class: &str, rect: Rect) {
        let (x, y) = (number(rect.x), number(rect.y));
        let (width, height) = (number(rect.width.max(0.0)), number(rect.height.max(0.0)));
        self.0
            .empty("rect", &[("class", class), ("x", &x), ("y", &y), ("width", &width), ("height", &height)]);
    }

    pub(super) fn circle(&mut self, class: &str, centre: Point, radius: f64) {
        let (x, y, r) = (number(centre.x), number(centre.y), number(radius));
        self.0.empty("circle", &[("class", class), ("cx", &x), ("cy", &y), ("r", &r)]);
    }

    /// Draws a line through points, or a surface, depending on the class.
    pub(super) fn path(&mut self, class: &str, points: &[Point]) {
        self.0.empty("path", &[("class", class), ("d", &path_data(points))]);
    }

    /// Several lines as one shape.
    pub(super) fn strokes(&mut self, class: &str, strokes: &[&[Point]]) {
        let data: String = strokes.iter().map(|points| path_data(points)).collect();
        self.0.empty("path", &[("class", class), ("d", &data)]);
    }

    pub(super) fn text(&mut self, class: &str, place: Point, anchor: Anchor, text: &str) {
        let (x, y) = (number(place.x), number(place.y));
        // A class is shorter than the attribute, and a page has a thousand texts.
        let class = match anchor {
            Anchor::Start => class.to_owned(),
            Anchor::Middle => format!("{class} mid"),
            Anchor::End => format!("{class} fin"),
        };
        self.0.leaf("text", &[("class", &class), ("x", &x), ("y", &y)], text);
    }
}

/// A coordinate with one decimal, which is finer than a screen. An invalid number becomes 0, so that one bad value
/// does not break the whole drawing.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let tenths = (value * 10.0).round() as i64;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => whole.to_string(),
        _ => format!("{:.1}", tenths as f64 / 10.0),
    }
}

/// The `d` of a path through points.
fn path_data(points: &[Point]) -> String {
    let mut data = String::new();
    for (index, point) in points.iter().enumerate() {
        data.push_str(match index {
            0 => "M",
            1 => "L",
            _ => " ",
        });
        data.push_str(&number(point.x));
        data.push(' ');
        data.push_str(&number(point.y));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_rounded() {
        assert_eq!(number(1.0), "1");
        assert_eq!(number(1.04), "1");
        assert_eq!(number(1.05001), "1.1");
        assert_eq!(number(-0.04), "0");
        assert_eq!(number(-0.55), "-0.6");
        assert_eq!(number(f64::INFINITY), "0");
    }

    #[test]
    fn a_drawing_is_as_expected() {
        let mut svg = Svg::new();
        svg.group(&[("class", "row")], |svg| {
            svg.tooltip("a < b");
            svg.line("axis", at(0.0, 1.0), at(2.54, 3.0));
            svg.path("curve", &[at(0.0, 0.0), at(1.0, 2.0), at(3.0, 4.0)]);
            svg.text("tick", at(1.0, 1.0), Anchor::End, "<script>");
        });
        let drawn = svg.finish(Frame::Narrow, 100.0, Caption { title: "t", desc: "d" }).into_string();
        assert_eq!(
            drawn,
            "<svg class=\"plot narrow\" viewBox=\"0 0 380 100\" role=\"img\"><title>t</title><desc>d</desc>\
             <g class=\"row\"><title>a &lt; b</title>\
             <line class=\"axis\" x1=\"0\" y1=\"1\" x2=\"2.5\" y2=\"3\"/>\
             <path class=\"curve\" d=\"M0 0L1 2 3 4\"/>\
             <text class=\"tick fin\" x=\"1\" y=\"1\">&lt;script&gt;</text></g></svg>"
        );
    }
}
