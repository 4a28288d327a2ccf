//! A writer of HTML and SVG text that cannot be left unbalanced or unescaped. Names of tags and attributes are
//! constants of this crate, all other text is escaped, and an element ends with the closure that fills it. It does not
//! know the content.

use std::fmt::Write;

use crate::terminal::{Escape, is_obeyed};

/// Attributes of an element; values are escaped.
pub(super) type Attrs<'a> = &'a [(&'static str, &'a str)];

/// Text of HTML or SVG that has been written so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Markup(String);

impl Markup {
    pub(super) fn new() -> Markup {
        Markup::default()
    }

    /// An element around what `fill` writes.
    pub(super) fn within(&mut self, tag: &'static str, attrs: Attrs, fill: impl FnOnce(&mut Markup)) {
        self.start(tag, attrs);
        self.0.push('>');
        fill(self);
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
    }

    /// An element around a text.
    pub(super) fn leaf(&mut self, tag: &'static str, attrs: Attrs, text: &str) {
        self.within(tag, attrs, |m| m.text(text));
    }

    /// An element that cannot have content (`meta`, `br`) or a shape of SVG without any.
    pub(super) fn empty(&mut self, tag: &'static str, attrs: Attrs) {
        self.start(tag, attrs);
        self.0.push_str("/>");
    }

    /// Writes a text. Characters that HTML forbids, and those that reverse the direction of writing, are shown as
    /// `\u202e`.
    pub(super) fn text(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(character),
                other if is_obeyed(other) => {
                    write!(self.0, "{}", Escape(other)).expect("a String takes everything");
                }
                other => self.0.push(other),
            }
        }
    }

    /// Text of our own source that is markup, style or script already.
    pub(super) fn source(&mut self, text: &'static str) {
        self.0.push_str(text);
    }

    /// What another writer has written.
    pub(super) fn append(&mut self, other: &Markup) {
        self.0.push_str(&other.0);
    }

    /// The text, with every element closed.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    fn start(&mut self, tag: &'static str, attrs: Attrs) {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attrs {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            self.text(value);
            self.0.push('"');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_closed_and_texts_escaped() {
        let mut m = Markup::new();
        m.within("p", &[("title", "a \"b\" & <c>")], |m| {
            m.text("1 < 2 & 'x'\u{1b}");
            m.empty("br", &[]);
            m.leaf("b", &[], "</b><script>");
        });
        assert_eq!(
            m.into_string(),
            "<p title=\"a &quot;b&quot; &amp; &lt;c&gt;\">1 &lt; 2 &amp; &#39;x&#39;\\u001b<br/>\
             <b>&lt;/b&gt;&lt;script&gt;</b></p>"
        );
    }
}
