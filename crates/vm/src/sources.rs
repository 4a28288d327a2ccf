//! Where the host gets its Debian packages from, and the same with backports added.
//!
//! Reads both of apt's formats (`sources.list` lines and deb822 stanzas) and keeps only Debian's own suites: the
//! host's mirror, keys and proxies are used, third parties' repositories are not.

use std::fs;
use std::path::Path;

use crate::{Error, Result};

/// One repository: the fields of a deb822 stanza that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    uris: String,
    suites: Vec<String>,
    components: Vec<String>,
    /// A path, or an embedded key with its continuation lines as they were.
    signed_by: Option<String>,
}

/// The stanzas for a private apt of the release `codename`, read under `etc_apt` (usually `/etc/apt`).
pub(crate) fn with_backports(etc_apt: &Path, codename: &str) -> Result<String> {
    let mut found = of_release(etc_apt, codename)?;
    let backports = format!("{codename}-backports");
    if !found.iter().any(|source| source.suites.contains(&backports)) {
        let base = base(&found, codename).clone();
        found.push(Source { suites: vec![backports], ..base });
    }
    Ok(found.iter().map(Source::stanza).collect::<Vec<_>>().join("\n"))
}

/// The stanza of the release `other`, with its backports, from the mirror of `codename`.
pub(crate) fn of_another(etc_apt: &Path, codename: &str, other: &str) -> Result<String> {
    let base = base(&of_release(etc_apt, codename)?, codename).clone();
    Ok(Source { suites: vec![other.to_owned(), format!("{other}-backports")], ..base }.stanza())
}

/// The sources of one release that has `main`; Debian's own mirror if there is none.
fn of_release(etc_apt: &Path, codename: &str) -> Result<Vec<Source>> {
    let wanted = suites(codename);
    let mut found = read(etc_apt)?;
    for source in &mut found {
        source.suites.retain(|suite| wanted.contains(suite));
    }
    found.retain(|source| !source.suites.is_empty() && source.components.iter().any(|name| name == "main"));
    if !found.iter().any(|source| source.carries(codename)) {
        found.push(Source {
            uris: "http://deb.debian.org/debian".into(),
            suites: vec![codename.into()],
            components: vec!["main".into()],
            signed_by: Some("/usr/share/keyrings/debian-archive-keyring.gpg".into()),
        });
    }
    Ok(found)
}

fn base<'a>(found: &'a [Source], codename: &str) -> &'a Source {
    found.iter().find(|source| source.carries(codename)).expect("one of a release's sources carries it")
}

fn suites(codename: &str) -> Vec<String> {
    let names = ["", "-updates", "-security", "-backports"];
    names.iter().map(|suffix| format!("{codename}{suffix}")).collect()
}

fn read(etc_apt: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let list = etc_apt.join("sources.list");
    if list.is_file() {
        sources.extend(lines(&fs::read_to_string(&list).map_err(Error::file("read", &list))?));
    }
    let parts = etc_apt.join("sources.list.d");
    let Ok(entries) = fs::read_dir(&parts) else { return Ok(sources) };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines,
            Some("sources") => stanzas,
            _ => continue,
        };
        sources.extend(parse(&fs::read_to_string(&path).map_err(Error::file("read", &path))?));
    }
    Ok(sources)
}

/// `deb [signed-by=… arch=…] URI SUITE COMPONENT…`
fn lines(text: &str) -> Vec<Source> {
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Source> {
    let text = text.split('#').next()?.trim();
    let rest = text.strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        uris: words.next()?,
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: options
            .split_whitespace()
            .find_map(|option| Some(option.strip_prefix("signed-by=")?.to_owned())),
    })
}

fn stanzas(text: &str) -> Vec<Source> {
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    kept.split(|line| line.trim().is_empty()).filter_map(stanza).collect()
}

fn stanza(lines: &[&str]) -> Option<Source> {
    let fields = fields(lines);
    let field = |name: &str| {
        fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    let words = |name: &str| -> Vec<String> {
        field(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let disabled = field("Enabled").is_some_and(|value| value.eq_ignore_ascii_case("no"));
    if disabled || !words("Types").iter().any(|kind| kind == "deb") {
        return None;
    }
    Some(Source {
        uris: field("URIs")?,
        suites: words("Suites"),
        components: words("Components"),
        signed_by: field("Signed-By"),
    })
}

/// The fields of a stanza, continuation lines joined to their field.
fn fields<'a>(lines: &[&'a str]) -> Vec<(&'a str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name, value.to_owned()));
        }
    }
    fields
}

impl Source {
    fn carries(&self, suite: &str) -> bool {
        self.suites.iter().any(|name| name == suite)
    }

    fn stanza(&self) -> String {
        let (uris, suites, components) = (&self.uris, self.suites.join(" "), self.components.join(" "));
        let signed = self.signed_by.iter().map(|key| format!("Signed-By: {key}\n")).collect::<String>();
        format!("Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: {components}\n{signed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sources.list.d")).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        assert_eq!(with_backports(folder.path(), "bookworm").unwrap(), expected);
    }

    #[test]
    fn lines_keep_mirror_and_key() {
        check(
            &[(
                "sources.list",
                "# deb http://old bookworm main\n\
                 deb [arch=amd64 signed-by=/k.gpg] http://mirror/debian bookworm main contrib # ours\n\
                 deb-src http://mirror/debian bookworm main\n\
                 deb http://third/party stable main\n",
            )],
            "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm\nComponents: main contrib\nSigned-By: /k.gpg\n\
             \nTypes: deb\nURIs: http://mirror/debian\nSuites: bookworm-backports\nComponents: main contrib\n\
             Signed-By: /k.gpg\n",
        );
    }

    #[test]
    fn another_release_comes_from_the_same_mirror() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "deb http://security/ bookworm-security main\ndeb [signed-by=/k.gpg] http://mirror/debian bookworm main\n";
        fs::write(folder.path().join("sources.list"), lines).unwrap();
        assert_eq!(
            of_another(folder.path(), "bookworm", "trixie").unwrap(),
            "Types: deb\nURIs: http://mirror/debian\nSuites: trixie trixie-backports\nComponents: main\n\
             Signed-By: /k.gpg\n"
        );
    }

    #[test]
    fn stanzas_keep_embedded_keys_and_drop_the_disabled() {
        check(
            &[(
                "sources.list.d/debian.sources",
                "Types: deb\n# a comment\nURIs: http://a/debian\nSuites: bookworm bookworm-updates other\n\
                 Components: main\nSigned-By:\n -----BEGIN\n .\n -----END\n\n\
                 Types: deb\nEnabled: no\nURIs: http://b\nSuites: bookworm\nComponents: main\n\n\
                 Types: deb\nURIs: http://a/debian\nSuites: bookworm-backports\nComponents: main\n",
            )],
            "Types: deb\nURIs: http://a/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
             Signed-By: -----BEGIN\n .\n -----END\n\
             \nTypes: deb\nURIs: http://a/debian\nSuites: bookworm-backports\nComponents: main\n",
        );
    }

    #[test]
    fn nothing_known_falls_back_to_debian() {
        check(
            &[(
                "sources.list.d/docker.list",
                "deb https://download.docker.com/linux/debian bookworm stable\n",
            )],
            "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\
             \nTypes: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm-backports\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        );
    }
}
