//! Circles between the files of a crate: where one file uses another, that one does not use it, nor by way of others. A
//! module and those below it are one thing in several files, and may. The same holds of the modules directly below
//! `src`, whichever of their files it is that use each other.

mod paths;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::paths::{Names, names};

/// More re-exports of re-exports than there are.
const REEXPORTS_MAX: usize = 10;

/// A module by its place in the crate; the crate itself is empty.
type Place = Vec<String>;

struct Module<'a> {
    file: &'a str,
    names: Names<'a>,
}

/// The circles of files, of all crates.
pub(super) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Place, Module<'_>>> = BTreeMap::new();
    for (file, content) in files {
        let Some((name, place)) = place_of(file) else { continue };
        crates.entry(name).or_default().insert(place, Module { file, names: names(content) });
    }
    let uses: BTreeSet<(&str, &str)> = crates.values().flat_map(uses).collect();
    let sentence = |circle: Vec<&str>| {
        let files = circle.join(" uses ");
        format!(
            "{files} uses the first; what they need of each other has a file of its own, or belongs to one of them"
        )
    };
    let mut found = circles(&uses);
    if found.is_empty() {
        // Of files that use each other the modules do, too.
        found = circles(&between_modules(&uses));
    }
    found.into_iter().map(sentence).collect()
}

/// The crate of a file and the module that is in it; `None`: it is of no library or program.
fn place_of(file: &str) -> Option<(&str, Place)> {
    let (name, path) = file.strip_prefix("crates/")?.split_once("/src/")?;
    let mut place: Place = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    match place.last()?.as_str() {
        _ if place[0] == "bin" => return None,
        "mod" => drop(place.pop()),
        "lib" | "main" if place.len() == 1 => place.clear(),
        _ => {}
    }
    Some((name, place))
}

/// Which files of a crate use which.
fn uses<'a>(modules: &BTreeMap<Place, Module<'a>>) -> BTreeSet<(&'a str, &'a str)> {
    let mut used: BTreeSet<(&Place, &Place)> = BTreeSet::new();
    for (place, module) in modules {
        let imported = module.names.uses.iter().map(|one| one.path.as_slice());
        let named = module.names.paths.iter().map(Vec::as_slice);
        // Whoever imports a module uses what it names of it afterwards.
        let homes =
            imported.chain(named).filter_map(|path| home(modules, place, path, 0)).filter(|home| home.1);
        used.extend(homes.map(|(home, _)| (place, home)).filter(|(place, home)| !related(place, home)));
    }
    used.into_iter().map(|(from, to)| (modules[from].file, modules[to].file)).collect()
}

/// Which modules directly below `src` use which, by way of any of their files.
fn between_modules<'a>(uses: &BTreeSet<(&'a str, &'a str)>) -> BTreeSet<(&'a str, &'a str)> {
    let both = |(from, to): &(&'a str, &'a str)| Some((module_of(from)?, module_of(to)?));
    uses.iter().filter_map(both).filter(|(from, to)| from != to).collect()
}

/// The file or folder directly below `src` that a file belongs to; `None`: it is the crate's own.
fn module_of(file: &str) -> Option<&str> {
    let begin = file.find("/src/")? + "/src/".len();
    let name = file[begin..].split('/').next()?.trim_end_matches(".rs");
    (!matches!(name, "lib" | "main")).then(|| &file[..begin + name.len()])
}

/// Circles, each the shortest through its first file. No file is in two of them.
fn circles<'a>(uses: &BTreeSet<(&'a str, &'a str)>) -> Vec<Vec<&'a str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let files: BTreeSet<&str> = uses.iter().map(|(from, _)| *from).collect();
    for file in files {
        if !found.iter().flatten().any(|other| *other == file) {
            found.extend(way(uses, file, file));
        }
    }
    found
}

/// The shortest way by which one file uses another, without the other; `None`: it does not.
fn way<'a>(uses: &BTreeSet<(&'a str, &'a str)>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = *way.last().expect("a way has a beginning");
        for (_, next) in uses.range((last, "")..).take_while(|(of, _)| *of == last) {
            if *next == to {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([way.as_slice(), &[*next]].concat());
            }
        }
    }
    None
}

/// Whether one is the other, or is below it.
fn related(one: &Place, other: &Place) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The module where what `path` names for `from` is written, and whether it names something in it and not itself.
fn home<'m>(
    modules: &'m BTreeMap<Place, Module<'_>>,
    from: &Place,
    path: &[&str],
    reexports: usize,
) -> Option<(&'m Place, bool)> {
    let (first, mut rest) = path.split_first().filter(|_| reexports <= REEXPORTS_MAX)?;
    let mut at = from.clone();
    match *first {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop()?;
            while let Some((&"super", after)) = rest.split_first() {
                at.pop()?;
                rest = after;
            }
        }
        name => {
            let below = [from.as_slice(), &[name.to_owned()]].concat();
            if !modules.contains_key(&below) {
                let one = modules[from].names.uses.iter().find(|one| one.name == name && one.path != path)?;
                return home(modules, from, &[one.path.as_slice(), rest].concat(), reexports + 1);
            }
            at = below;
        }
    }
    while let Some((name, after)) = rest.split_first() {
        let below = [at.as_slice(), &[(*name).to_owned()]].concat();
        if !modules.contains_key(&below) {
            break;
        }
        (at, rest) = (below, after);
    }
    let (place, module) = modules.get_key_value(&at)?;
    let Some((name, after)) = rest.split_first() else { return Some((place, false)) };
    match module.names.uses.iter().find(|one| one.name == *name) {
        Some(one) => home(modules, place, &[one.path.as_slice(), after].concat(), reexports + 1),
        None => Some((place, true)),
    }
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<_> = files
            .iter()
            .map(|(name, text)| (format!("crates/a/src/{name}.rs"), (*text).to_owned()))
            .collect();
        let found = super::check(&files);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{found:?}");
    }

    const B_AND_C: &str = "crates/a/src/b.rs uses crates/a/src/c.rs uses the first";

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let c = ("c", "use super::b::B;\nstruct C;");
        check(&[("b", "use crate::c::C;"), c], &[B_AND_C]);
        check(&[("b", "fn f() { crate::c::f() }"), c], &[B_AND_C]);
        check(&[("b", "use crate::c;\nfn f(c: c::C) {}"), c], &[B_AND_C]);
        check(&[("lib", "mod b; mod c; pub use c::{C as D};"), ("b", "use crate::{D};"), c], &[B_AND_C]);
    }

    #[test]
    fn a_circle_of_three_is_one() {
        let (c, d) = (("c", "use crate::d::D;"), ("d", "use crate::b::B;"));
        let all = "crates/a/src/b.rs uses crates/a/src/c.rs uses crates/a/src/d.rs uses the first";
        check(&[("b", "use crate::c::C;"), c, d], &[all]);
        check(&[("b", ""), c, d], &[]);
    }

    #[test]
    fn one_way_is_none_nor_what_only_tests_comments_and_strings_use() {
        let c = ("c", "use crate::b::B;");
        check(&[("b", "struct B;"), c], &[]);
        check(&[("b", "#[cfg(test)]\nmod tests { use crate::c::C; }"), c], &[]);
        check(&[("b", "// crate::c::C\nconst C: &str = \"crate::c::C\";"), c], &[]);
        check(&[("b", "use crate::c;"), c], &[]);
    }

    #[test]
    fn a_module_and_those_below_it_are_one_thing() {
        check(&[("b", "mod c; use self::c::C;"), ("b/c", "use super::B;")], &[]);
        check(&[("lib", "mod b; use b::B;"), ("b", "use crate::A;")], &[]);
        check(&[("b/mod", "mod c; use c::C;"), ("b/c", "use crate::b::B;")], &[]);
    }

    #[test]
    fn modules_that_use_each_other_by_way_of_different_files_are_a_circle() {
        let (b, c) = (("b", "mod x; mod z;"), ("c", "mod w; mod y;"));
        let there = ("b/x", "use crate::c::y::Y;");
        check(&[b, there, ("b/z", ""), c, ("c/y", ""), ("c/w", "")], &[]);
        let all = [b, there, ("b/z", ""), c, ("c/y", ""), ("c/w", "use crate::b::z::Z;")];
        check(&all, &["crates/a/src/b uses crates/a/src/c uses the first"]);
    }
}
