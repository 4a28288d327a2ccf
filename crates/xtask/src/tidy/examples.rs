//! Examples in doc comments: rustdoc would build the workspace once more, with other features, to run them.

/// Blocks in these are shown and not run.
const OTHER_LANGUAGES: [&str; 4] = ["text", "toml", "json", "sh"];

/// The blocks of Rust in the doc comments of the file at `path`, which nothing compiles.
pub(super) fn check(path: &str, content: &str) -> Vec<String> {
    let mut is_inside = false;
    let fences = content.lines().enumerate().filter_map(|(index, line)| Some((index + 1, doc_fence(line)?)));
    let opened = fences.filter(|_| {
        is_inside = !is_inside;
        is_inside
    });
    let rust = opened.filter(|(_, language)| !OTHER_LANGUAGES.contains(language));
    rust.map(|(line, _)| {
        let remedy = "name the block's language, or make it a program in the crate's folder examples";
        format!("{path}:{line}: no test compiles an example in a doc comment; {remedy}")
    })
    .collect()
}

/// What follows the fence of a block of code in a doc comment.
fn doc_fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    comment.trim_start().strip_prefix("```").map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_in_doc_comments_is_found() {
        for (content, line) in [
            ("/// A\n/// ```\n/// let a = 1;\n/// ```\nfn a() {}", 2),
            ("//! ```should_panic\n//! panic!();\n//! ```", 1),
            ("    /// ```text\n    /// a\n    /// ```\n    /// ```no_run\n    /// ```\n", 4),
        ] {
            let found = check("a.rs", content);
            assert!(found.len() == 1 && found[0].starts_with(&format!("a.rs:{line}: ")), "{found:?}");
        }
    }

    #[test]
    fn other_blocks_are_not() {
        let other = "//! ```text\n//! a -> b\n//! ```\nlet fence = \"```\";";
        assert_eq!(check("a.rs", other), Vec::<String>::new());
    }
}
