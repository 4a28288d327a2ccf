//! Tables: a caption, a head, rows that begin with their name. A table scrolls inside its own frame.

use super::markup::Markup;

/// A table to be written.
pub(super) struct Table<'a> {
    /// The caption above the table.
    pub(super) caption: &'a str,
    /// The heads of the columns, the names' column first.
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    pub(super) name: String,
    /// The candidate it is about, as a place in the summary.
    pub(super) candidate: Option<usize>,
    /// Its cells after the name.
    pub(super) cells: Vec<Cell>,
}

pub(super) struct Cell {
    text: String,
    class: &'static str,
    key: Option<String>,
    span: usize,
}

impl Cell {
    const UNDER: &'static str = "under";

    pub(super) fn figure(text: String) -> Cell {
        Cell { text, class: "", key: None, span: 1 }
    }

    /// A figure that is drawn too, under the same key.
    pub(super) fn plotted(text: String, key: String) -> Cell {
        Cell { text, class: "", key: Some(key), span: 1 }
    }

    pub(super) fn words(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), class: "w", key: None, span: 1 }
    }

    /// A text that is read as a sentence and needs room.
    pub(super) fn sentence(text: &str) -> Cell {
        Cell { text: text.to_owned(), class: "w s", key: None, span: 1 }
    }

    /// A sentence about the whole row, which stands in a line of its own below it.
    pub(super) fn under(text: &str) -> Cell {
        Cell { text: text.to_owned(), class: Cell::UNDER, key: None, span: 1 }
    }

    /// A word with a class of the style.
    pub(super) fn classed(text: &str, class: &'static str) -> Cell {
        Cell { text: text.to_owned(), class, key: None, span: 1 }
    }

    /// A text over several columns.
    pub(super) fn spanning(text: String, span: usize) -> Cell {
        Cell { text, class: "w", key: None, span }
    }
}

impl Table<'_> {
    /// Writes the table with its caption.
    pub(super) fn write(&self, m: &mut Markup) {
        // A frame that scrolls must be reachable by keyboard, and then needs a name.
        let frame =
            [("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", self.caption)];
        m.within("div", &frame, |m| {
            m.within("table", &[], |m| {
                m.leaf("caption", &[], self.caption);
                m.within("thead", &[], |m| {
                    m.within("tr", &[], |m| {
                        for (column, name) in self.head.iter().enumerate() {
                            let attrs = [("scope", "col"), ("class", "w")];
                            m.leaf("th", if self.is_words(column) { &attrs } else { &attrs[..1] }, name);
                        }
                    });
                });
                m.within("tbody", &[], |m| {
                    for row in &self.rows {
                        row.write(m);
                    }
                });
            });
        });
    }
}

impl Table<'_> {
    /// Whether a column holds words, as its first row of full width shows; its head then stands left like them.
    fn is_words(&self, column: usize) -> bool {
        let full = self.rows.iter().find(|row| row.beside().count() + 1 == self.head.len());
        full.and_then(|row| row.beside().nth(column.checked_sub(1)?))
            .is_some_and(|cell| !cell.class.is_empty())
    }
}

impl Row {
    fn write(&self, m: &mut Markup) {
        let candidate = self.candidate.map(|index| index.to_string());
        let attrs: Vec<(&'static str, &str)> =
            candidate.iter().map(|index| ("data-c", index.as_str())).collect();
        m.within("tr", &attrs, |m| {
            m.leaf("th", &[("scope", "row")], &self.name);
            self.beside().for_each(|cell| cell.write(m));
        });
        let span = (1 + self.beside().map(|cell| cell.span).sum::<usize>()).to_string();
        for below in self.cells.iter().filter(|cell| cell.class == Cell::UNDER) {
            m.within("tr", &[&[("class", Cell::UNDER)], attrs.as_slice()].concat(), |m| {
                // What is wider than the window scrolls; the sentence stays in sight.
                m.within("td", &[("colspan", &span)], |m| m.leaf("div", &[], &below.text));
            });
        }
    }

    /// Its cells under the heads of the columns.
    fn beside(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.class != Cell::UNDER)
    }
}

impl Cell {
    fn write(&self, m: &mut Markup) {
        let span = self.span.to_string();
        let mut attrs: Vec<(&'static str, &str)> = Vec::new();
        if !self.class.is_empty() {
            attrs.push(("class", self.class));
        }
        if let Some(key) = &self.key {
            attrs.push(("data-f", key));
        }
        if self.span > 1 {
            attrs.push(("colspan", &span));
        }
        m.leaf("td", &attrs, &self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_under_a_row_spans_all_columns_and_belongs_to_the_same_candidate() {
        let cells = vec![
            Cell::figure("1.45".to_owned()),
            Cell::classed("worse", "v-worse"),
            Cell::under("p99 decides"),
        ];
        let row = Row { name: "docker".to_owned(), candidate: Some(2), cells };
        let head = ["data path", "÷ host", "verdict"].map(str::to_owned).to_vec();
        let mut m = Markup::new();
        Table { caption: "c", head, rows: vec![row] }.write(&mut m);
        let written = m.into_string();
        let expected = "<tr data-c=\"2\"><th scope=\"row\">docker</th><td>1.45</td>\
                        <td class=\"v-worse\">worse</td></tr>\
                        <tr class=\"under\" data-c=\"2\"><td colspan=\"3\"><div>p99 decides</div></td></tr>";
        assert!(written.replace('\n', "").contains(expected), "{written}");
        assert!(written.contains("<th scope=\"col\" class=\"w\">verdict</th>"), "{written}");
    }
}
