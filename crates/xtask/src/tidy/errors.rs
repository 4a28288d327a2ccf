//! The texts of errors: what `#[error("…")]` says follows "could not" or a colon.

/// Returns the offences in the texts of a file's error types.
pub(super) fn check(path: &str, content: &str) -> Vec<String> {
    texts(content)
        .filter_map(|(line, text)| fault(text).map(|why| format!("{path}:{line}: {why}: {text:?}")))
        .collect()
}

/// The line number and the beginning of each text.
fn texts(content: &str) -> impl Iterator<Item = (usize, &str)> {
    content.match_indices("#[error(").filter_map(|(at, attribute)| {
        let rest = content[at + attribute.len()..].trim_start();
        // `transparent` has no text of its own.
        let text = rest.strip_prefix('"')?;
        let line = content[..at].matches('\n').count() + 1;
        Some((line, &text[..closing(text)]))
    })
}

/// The end of a string literal.
fn closing(literal: &str) -> usize {
    let mut escaped = false;
    let end = literal.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    end.unwrap_or(literal.len())
}

fn fault(text: &str) -> Option<&'static str> {
    let first = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    // Names in capitals, such as TLS and HTTP, stay as they are.
    let is_sentence = first.starts_with(char::is_uppercase) && first.chars().skip(1).all(char::is_lowercase);
    if text.starts_with("could not") || text.starts_with("cannot") {
        return Some("the text of an error does not begin with \"could not\"; whoever prints it says that");
    }
    if is_sentence {
        return Some("the text of an error begins with a small letter");
    }
    text.ends_with('.').then_some("the text of an error has no full stop at its end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_behind_could_not() {
        let found = |attribute: &str| check("a.rs", &format!("enum E {{\n    {attribute}\n    A,\n}}\n"));
        for fine in [
            "#[error(\"read {path}: {why}\")]",
            "#[error(\"{0}\")]",
            "#[error(transparent)]",
            "#[error(\n        \"TLS: {0}\"\n    )]",
        ] {
            assert_eq!(found(fine), [""; 0], "{fine}");
        }
        for (wrong, says) in [
            ("#[error(\"could not read {path}\")]", "could not"),
            ("#[error(\"cannot read {path}\")]", "could not"),
            ("#[error(\n        \"Reading failed\"\n    )]", "small letter"),
            ("#[error(\"read \\\"{path}\\\".\")]", "full stop"),
        ] {
            let offences = found(wrong);
            assert!(
                offences.len() == 1 && offences[0].contains("a.rs:2: ") && offences[0].contains(says),
                "{offences:?}"
            );
        }
    }
}
