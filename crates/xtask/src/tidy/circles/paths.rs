//! Which paths a file of Rust names: enough of the language for that, and no more.

/// What a file names outside its tests.
pub(super) struct Names<'a> {
    pub(super) uses: Vec<Use<'a>>,
    /// Other paths with more than one part.
    pub(super) paths: Vec<Vec<&'a str>>,
}

/// One name of a `use`.
pub(super) struct Use<'a> {
    /// By which the file knows it.
    pub(super) name: &'a str,
    pub(super) path: Vec<&'a str>,
}

pub(super) fn names(content: &str) -> Names<'_> {
    let tokens = tokens(content);
    let mut names = Names { uses: Vec::new(), paths: Vec::new() };
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        rest = match *token {
            "#" if rest.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) => behind_item(&rest[7..]),
            // Behind these follows what is of another crate.
            "use" if after.first() == Some(&"::") => behind_item(after),
            "::" => path(after).1,
            "use" => tree(after, &[], &mut names.uses),
            word if is_word(word) && after.first() == Some(&"::") => {
                let (path, after) = path(rest);
                names.paths.push(path);
                after
            }
            _ => after,
        };
    }
    names
}

/// Words, `::`, and single other letters; no comments, literals or white space.
fn tokens(content: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = content;
    while let Some(letter) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let hashes = rest[word..].bytes().take_while(|byte| *byte == b'#').count();
        let is_raw = matches!(&rest[..word], "r" | "br") && rest[word + hashes..].starts_with('"');
        let length = if is_raw {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = word + hashes + 1;
            rest[from..].find(&end).map_or(rest.len(), |at| from + at + end.len())
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if letter == '"' {
            1 + closing(&rest[1..], '"')
        } else if letter == '\'' {
            // A lifetime has no second one behind its first letter.
            let is_letter = rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'');
            if is_letter { 1 + closing(&rest[1..], '\'') } else { 1 }
        } else {
            let length = if word > 0 {
                word
            } else if rest.starts_with("::") {
                2
            } else {
                letter.len_utf8()
            };
            if !letter.is_whitespace() {
                tokens.push(&rest[..length]);
            }
            length
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a literal from behind its first mark, with the last one.
fn closing(literal: &str, mark: char) -> usize {
    let mut escaped = false;
    let end = literal.find(|letter| {
        let ends = letter == mark && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    end.map_or(literal.len(), |at| at + 1)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// What follows an item: a `;`, or the brace that closes its first.
fn behind_item<'t, 'a>(tokens: &'t [&'a str]) -> &'t [&'a str] {
    let mut depth = 0_usize;
    let end = tokens.iter().position(|token| {
        match *token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(*token, ";" | "}")
    });
    &tokens[end.map_or(tokens.len(), |end| end + 1)..]
}

/// The path at the beginning of the tokens, and what follows it.
fn path<'t, 'a>(tokens: &'t [&'a str]) -> (Vec<&'a str>, &'t [&'a str]) {
    let end = tokens.iter().position(|token| *token != "::" && !is_word(token)).unwrap_or(tokens.len());
    // Two words without `::` between them are of two things.
    let end = (1..end).find(|at| tokens[*at] != "::" && tokens[at - 1] != "::").unwrap_or(end);
    (tokens[..end].iter().copied().filter(|token| *token != "::").collect(), &tokens[end..])
}

/// Reads one branch of a `use`, and returns what follows it.
fn tree<'t, 'a>(tokens: &'t [&'a str], above: &[&'a str], uses: &mut Vec<Use<'a>>) -> &'t [&'a str] {
    let (below, mut rest) = path(tokens);
    let mut path = [above, &below].concat();
    if rest.first() == Some(&"{") {
        while let Some((token, after)) = rest.split_first().filter(|(token, _)| **token != "}") {
            rest = if matches!(*token, "{" | ",") { tree(after, &path, uses) } else { after };
        }
        return rest.get(1..).unwrap_or_default();
    }
    if path.last() == Some(&"self") && path.len() > 1 {
        path.pop();
    }
    let mut name = path.last().copied();
    if let Some((&"as", after)) = rest.split_first() {
        name = after.first().copied();
        rest = after.get(1..).unwrap_or_default();
    }
    if let Some(name) = name.filter(|_| rest.first() != Some(&"*") && !below.is_empty()) {
        uses.push(Use { name, path });
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_branch_of_a_use_has_its_path() {
        let found =
            names("pub(crate) use a::{self, b::{C, D as E,}, F};\nuse x::*;\nuse y::Z as _;\nuse ::w::V;");
        let found: Vec<_> = found.uses.iter().map(|one| (one.name, one.path.join("::"))).collect();
        let expected = [("a", "a"), ("C", "a::b::C"), ("E", "a::b::D"), ("F", "a::F"), ("_", "y::Z")];
        assert_eq!(found, expected.map(|(name, path)| (name, path.to_owned())));
    }

    #[test]
    fn paths_are_found_between_all_else() {
        let code = "fn f<'a>(a: &'a crate::A) -> b::B<c::C> { d::e(::q::r, '\\'', '\"', r#\"x::y\"#); /// z::z\n g::h }";
        let text = format!("#[cfg(test)]\nuse t::{{u}};\n{code}\n#[cfg(test)]\nmod t {{ v::w() }}\ni::j");
        let found = names(&text);
        assert!(found.uses.is_empty());
        let paths: Vec<_> = found.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::A", "b::B", "c::C", "d::e", "g::h", "i::j"]);
    }
}
