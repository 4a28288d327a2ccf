//! Rows and columns of text, aligned, no wider than the terminal.

use super::Style;
use crate::terminal::line;

/// How a row is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Bold,
    Dim,
    Green,
    Red,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) ink: Ink,
}

/// The number of spaces between columns.
pub(super) const GAP: usize = 2;

/// Draws rows with their first and last column left-aligned and the others right-aligned. Columns are left out, the
/// most dispensable first, until a line fits.
pub(super) fn draw(rows: &[Row], dispensable: &[usize], style: Style) -> String {
    // Escape before measuring, because escapes are longer.
    let safe =
        |row: &Row| Row { cells: row.cells.iter().map(|cell| line(cell).into()).collect(), ink: row.ink };
    let rows: Vec<Row> = rows.iter().map(safe).collect();
    let widths: Vec<usize> = (0..dispensable.len())
        .map(|column| rows.iter().map(|row| row.cells[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    let width = |kept: &[usize]| kept.iter().map(|column| widths[*column] + GAP).sum::<usize>();
    while width(&kept) > style.width {
        let Some(victim) = kept
            .iter()
            .copied()
            .filter(|column| dispensable[*column] > 0)
            .max_by_key(|column| dispensable[*column])
        else {
            break;
        };
        kept.retain(|column| *column != victim);
    }
    rows.iter().map(|row| draw_row(row, &kept, &widths, style.colour)).collect()
}

fn draw_row(row: &Row, kept: &[usize], widths: &[usize], colour: bool) -> String {
    let mut line = String::new();
    for (place, column) in kept.iter().enumerate() {
        let (cell, width) = (&row.cells[*column], widths[*column]);
        let left = place == 0 || place + 1 == kept.len();
        line.push_str(&" ".repeat(GAP));
        line.push_str(&if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
    }
    format!("{}\n", ink(line.trim_end(), row.ink, colour))
}

/// Text in an ink; [`INKS`](crate::terminal::INKS) has the codes too.
pub(super) fn ink(text: &str, ink: Ink, colour: bool) -> String {
    let code = match ink {
        Ink::Plain => return text.to_owned(),
        _ if !colour => return text.to_owned(),
        Ink::Bold => "1",
        Ink::Dim => "2",
        Ink::Green => "32",
        Ink::Red => "31",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 3], ink: Ink) -> Row {
        Row { cells: cells.map(str::to_owned).to_vec(), ink }
    }

    #[test]
    fn the_most_dispensable_column_goes_first() {
        let rows = [row(["name", "extra", "µs ±1"], Ink::Bold), row(["a", "1", "2"], Ink::Red)];
        let drawn = |width, colour| draw(&rows, &[0, 1, 0], Style { colour, width });
        assert_eq!(drawn(20, false), "  name  extra  µs ±1\n  a         1  2\n");
        assert_eq!(drawn(19, false), "  name  µs ±1\n  a     2\n");
        assert_eq!(drawn(3, false), drawn(19, false));
        assert_eq!(drawn(19, true), "\u{1b}[1m  name  µs ±1\u{1b}[0m\n\u{1b}[31m  a     2\u{1b}[0m\n");
    }
}
