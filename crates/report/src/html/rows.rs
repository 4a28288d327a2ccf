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

/// The width of a letter of a name, on average.
const LETTER: f64 = 7.9;

/// The room that wide drawings leave to names: as much as the longest one takes, up to a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameColumn {
    /// A longer name is shortened.
    pub(super) letters: usize,
    /// More than the least that the drawing has room for anyway.
    pub(super) more: f64,
}

impl NameColumn {
    const LETTERS_MAX: usize = 36;

    /// Of a drawing that has room for `least` letters.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>, least: usize) -> NameColumn {
        let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let letters = longest.clamp(least, NameColumn::LETTERS_MAX.max(least));
        NameColumn { letters, more: LETTER * (letters - least) as f64 }
    }

    /// Left of the rows of candidates.
    pub(super) fn beside<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> NameColumn {
        NameColumn::of(candidates.map(|candidate| candidate.name.as_str()), 19)
    }

    /// Where the names left of rows end.
    pub(super) fn end(self) -> f64 {
        150.0 + self.more
    }

    /// Where the drawing beside them begins.
    pub(super) fn right(self) -> f64 {
        160.0 + self.more
    }
}

/// Writes a candidate's name in `most` letters; one that is shortened shows the whole to a pointer.
pub(super) fn draw_name(svg: &mut Svg, candidate: &Candidate, most: usize, place: Point, anchor: Anchor) {
    let class = match candidate.role {
        Role::Reference => "name strong",
        Role::Control | Role::Contender => "name",
    };
    let shown = marks::fitting(&candidate.name, most);
    if shown == candidate.name {
        return svg.text(class, place, anchor, &shown);
    }
    svg.group(&[], |svg| {
        svg.tooltip(&candidate.name);
        svg.text(class, place, anchor, &shown);
    });
}

/// Draws a tick through all rows, with its figure below them.
pub(super) fn draw_tick(svg: &mut Svg, class: &str, x: f64, (top, bottom): (f64, f64), figure: &str) {
    svg.line(class, at(x, top), at(x, bottom));
    svg.text("tick", at(x, bottom + 18.0), Anchor::Middle, figure);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_room_that_the_longest_takes_up_to_a_limit() {
        let column = |longest: usize| NameColumn::of(["host", &"n".repeat(longest)].into_iter(), 19);
        assert_eq!((column(7).letters, column(7).right()), (19, 160.0));
        assert_eq!((column(29).letters, column(29).right()), (29, 239.0));
        assert_eq!(column(300).letters, 36);
    }

    #[test]
    fn a_shortened_name_shows_the_whole_to_a_pointer() {
        let drawn = |most: usize| {
            let mut svg = Svg::new();
            let host = &super::super::fixture::race().candidates[1];
            draw_name(&mut svg, host, most, at(0.0, 0.0), Anchor::End);
            svg.finish(Frame::Wide, 10.0, super::super::svg::Caption { title: "t", desc: "d" }).into_string()
        };
        assert!(
            drawn(6).contains("<title>host again</title>") && drawn(6).contains(">ho…ain</text>"),
            "{}",
            drawn(6)
        );
        assert!(!drawn(10).contains("<title>host again"), "{}", drawn(10));
    }
}
