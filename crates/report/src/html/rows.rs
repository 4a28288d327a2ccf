//! Drawings with a row a candidate: where rows and panels are, for wide and for narrow windows.

use super::marks;
use super::svg::{Anchor, Frame, Point, Svg, at};
use crate::{Candidate, Role};

/// From the top of a panel to its first row: its name.
pub(super) const HEAD: f64 = 34.0;
/// From the last row to the end of a panel: ticks.
const FOOT: f64 = 30.0;

/// A part of a drawing with a separate scale and a row for each candidate.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
}

impl Panel {
    /// The height of a panel of `rows` rows.
    pub(super) fn height(frame: Frame, rows: usize) -> f64 {
        HEAD + height(frame) * rows as f64 + FOOT
    }

    /// The height at which a row is drawn.
    pub(super) fn row(self, frame: Frame, row: usize) -> f64 {
        middle(frame, self.top + HEAD, row)
    }

    /// The span from the first row's top to the end of `rows` rows.
    pub(super) fn span(self, frame: Frame, rows: usize) -> (f64, f64) {
        (self.top + HEAD, self.top + HEAD + height(frame) * rows as f64)
    }

    /// Draws the panel's title above its rows.
    pub(super) fn draw_title(self, svg: &mut Svg, title: &str) {
        svg.text("panel", at(self.left, self.top + 18.0), Anchor::Start, title);
    }
}

/// The height of a row; in narrow frames the name is above the drawing.
pub(super) fn height(frame: Frame) -> f64 {
    match frame {
        Frame::Wide => 26.0,
        Frame::Narrow => 40.0,
    }
}

/// The height at which a row is drawn, where the first one begins at `top`.
pub(super) fn middle(frame: Frame, top: f64, row: usize) -> f64 {
    let share = match frame {
        Frame::Wide => 0.5,
        Frame::Narrow => 0.68,
    };
    top + height(frame) * (row as f64 + share)
}

/// Writes a candidate's name in `most` letters.
pub(super) fn draw_name(svg: &mut Svg, candidate: &Candidate, most: usize, place: Point, anchor: Anchor) {
    let class = match candidate.role {
        Role::Reference => "name strong",
        Role::Control | Role::Contender => "name",
    };
    svg.text(class, place, anchor, &marks::fitting(&candidate.name, most));
}

/// Draws a tick through all rows, with its figure below them.
pub(super) fn draw_tick(svg: &mut Svg, class: &str, x: f64, (top, bottom): (f64, f64), figure: &str) {
    svg.line(class, at(x, top), at(x, bottom));
    svg.text("tick", at(x, bottom + 18.0), Anchor::Middle, figure);
}
