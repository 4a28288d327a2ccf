//! Text of others on a terminal.

/// A text with its control characters as escapes. What a server, a certificate or a copied URL brings along could
/// otherwise change the terminal on which an error is shown.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { plain.extend(c.escape_debug()) } else { plain.push(c) }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(plain("\u{1b}[31mä\u{9b}\r\n\u{7f}"), "\\u{1b}[31mä\\u{9b}\\r\\n\\u{7f}");
        assert_eq!(plain("http://[::1]:80/\"'\\x?é"), "http://[::1]:80/\"'\\x?é");
    }
}
