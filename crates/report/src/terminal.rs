//! Makes text safe for a terminal.
//!
//! A record, an experiment, a link's name or a server's answer may contain any characters. A terminal executes control
//! characters of either set, and characters that change the direction of writing make a line read differently. All
//! output of the program passes through here once.

use std::borrow::Cow;
use std::fmt::Write;

/// The colour codes that tables use themselves (`table::grid`).
pub(crate) const INKS: [&str; 5] = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m"];

/// The text with such characters written as `\u001b`; line feeds and tabs stay. JSON keeps its meaning: it has such
/// characters only within strings, and this is the escape syntax of its strings.
pub fn safe(text: &str) -> Cow<'_, str> {
    escaped(text, |character| !matches!(character, '\n' | '\t') && is_obeyed(character))
}

/// Like [`safe`], for a text that must stay on one line, such as a name.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The same for a text with colours of ours in it.
pub(crate) fn painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, order) = rest.split_at(at);
        out.push_str(&safe(before));
        let length = INKS.iter().find(|ink| order.starts_with(**ink)).map(|ink| ink.len());
        let (order, after) = order.split_at(length.unwrap_or(1));
        out.push_str(&if length.is_some() { Cow::Borrowed(order) } else { safe(order) });
        rest = after;
    }
    out.push_str(&safe(rest));
    out
}

/// Whether a terminal or a browser does something with a character instead of showing it.
pub(crate) fn is_obeyed(character: char) -> bool {
    // Embeddings, overrides and isolates of the bidirectional algorithm, its marks, and the separators of lines.
    let directs = matches!(character, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}');
    character.is_control() || directs || matches!(character, '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) {
            write!(out, "{}", Escape(character)).expect("a String takes everything");
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// A character as `\u001b`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Escape(pub(crate) char);

impl std::fmt::Display for Escape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\\u{:04x}", u32::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_shown() {
        let check = |text: &str, expected: &str| assert_eq!(safe(text), expected);
        check("plain µ ±3 % – ½\n\tsecond", "plain µ ±3 % – ½\n\tsecond");
        check("\u{1b}[2J\u{7}\r\u{8}\0", "\\u001b[2J\\u0007\\u000d\\u0008\\u0000");
        check("\u{7f}\u{80}\u{9b}31m\u{9f}", "\\u007f\\u0080\\u009b31m\\u009f");
        check("\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}", "\\u202a\\u202e\\u2066\\u2069\\u200f");
        assert_eq!(line("a\nb\tc"), "a\\u000ab\\u0009c");
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{1b}[1m", "\u{7f}\u{202e}\n"], "b": 1 });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = safe(&text);
        assert!(!shown.chars().any(|c| c != '\n' && is_obeyed(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn colours_of_ours_stay() {
        let text = "\u{1b}[1mhead\u{1b}[0m \u{1b}[8mhidden\u{1b}";
        assert_eq!(painted(text), "\u{1b}[1mhead\u{1b}[0m \\u001b[8mhidden\\u001b");
    }
}
