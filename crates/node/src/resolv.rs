//! A file in the format of resolv.conf(5), as what a result says of how a container resolves names (`ipam.resolvConf`).

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use cni::{ErrorCode, Failure};
use serde::Serialize;
use serde_json::Value;

/// The longest file that is read, in bytes: resolvers use three servers and six domains of it.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What the specification has of it (`dns`). What a file does not say is left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Dns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nameservers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

/// Reads the file that a configuration names.
///
/// # Errors
/// Code 5 if it cannot be read, 7 for a server that is no IP address; the message has the key, the path and the line.
pub(crate) fn read(path: &Path) -> Result<Value, Failure> {
    let failed = |code: ErrorCode, why: String| Failure {
        details: Some(
            "name a file as in resolv.conf(5), or say `dns` in the configuration instead".to_owned(),
        ),
        ..Failure::new(code, format!("follow `ipam.resolvConf`: {}: {why}", path.display()))
    };
    let text = text(path).map_err(|error| failed(ErrorCode::IO_FAILURE, error.to_string()))?;
    let dns = parse(&text).map_err(|why| failed(ErrorCode::INVALID_NETWORK_CONFIG, why))?;
    Ok(serde_json::to_value(dns).expect("its keys are texts"))
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more shows that there is more. A device may never end.
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// As host-local reads it: the last `domain` counts, lists are joined, and unknown words are left alone.
fn parse(text: &str) -> Result<Dns, String> {
    let mut dns = Dns::default();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let keyword = words.next().unwrap_or_default();
        let mut values = words.map(str::to_owned);
        match keyword {
            "nameserver" => {
                let server = values.next().unwrap_or_default();
                // A link-local address has the link behind it.
                let address = server.split('%').next().unwrap_or_default();
                if address.parse::<IpAddr>().is_err() {
                    return Err(format!(
                        "line {} has the nameserver {server:?}, which is no IP address",
                        index + 1
                    ));
                }
                dns.nameservers.push(server);
            }
            "domain" => dns.domain = values.next().or(dns.domain),
            "search" => dns.search.extend(values),
            "options" => dns.options.extend(values),
            // Comments, and what only some resolvers know.
            _ => {}
        }
    }
    Ok(dns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &Value) {
        assert_eq!(serde_json::to_value(parse(text).unwrap()).unwrap(), *expected);
    }

    #[test]
    fn a_file_is_read_as_host_local_reads_it() {
        let text = "# of the node\n; old\n\nnameserver 192.0.2.53\n\tnameserver  fe80::1%eth0 # near\ndomain a.example\n\
                    domain b.example\nsearch x.example y.example\nsearch z.example\noptions ndots:5 rotate\noptions edns0\n\
                    sortlist 10.0.0.0\ndomain\nsearch\n";
        check(
            text,
            &json!({
                "nameservers": ["192.0.2.53", "fe80::1%eth0"], "domain": "b.example",
                "search": ["x.example", "y.example", "z.example"], "options": ["ndots:5", "rotate", "edns0"],
            }),
        );
        check("", &json!({}));
    }

    #[test]
    fn a_server_that_is_no_address_is_named_with_its_line() {
        let why = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            why("search a\nnameserver dns.example\n"),
            "line 2 has the nameserver \"dns.example\", which is no IP address"
        );
        assert!(why("nameserver").starts_with("line 1 has the nameserver \"\""));
    }

    /// Words that mean something, in lines that may have anything else between them.
    fn files() -> impl Strategy<Value = String> {
        let words = prop_oneof![
            Just("nameserver".to_owned()),
            Just("domain".to_owned()),
            Just("search".to_owned()),
            Just("options".to_owned()),
            Just("192.0.2.53".to_owned()),
            Just("fe80::1%eth0".to_owned()),
            "\\PC{0,8}",
        ];
        let separators =
            prop_oneof![Just(" "), Just("\t"), Just("\n"), Just("\r\n"), Just("\u{a0}"), Just("\0")];
        let pieces = prop::collection::vec((words, separators), 0..40);
        pieces.prop_map(|pieces| pieces.into_iter().map(|(word, between)| word + between).collect())
    }

    proptest! {
        /// Whatever a file holds, a container gets servers that are addresses and single words, or the line is named.
        #[test]
        fn any_file_gives_words_or_names_a_line(text in files()) {
            match parse(&text) {
                Ok(Dns { nameservers, domain, search, options }) => {
                    for server in &nameservers {
                        prop_assert!(server.split('%').next().unwrap().parse::<IpAddr>().is_ok(), "{server:?}");
                    }
                    let words = nameservers.iter().chain(&domain).chain(&search).chain(&options);
                    for word in words {
                        prop_assert!(!word.is_empty() && !word.contains(char::is_whitespace), "{word:?}");
                        prop_assert!(text.contains(word.as_str()));
                    }
                }
                Err(why) => {
                    let number = why.strip_prefix("line ").unwrap().split(' ').next().unwrap();
                    let line = text.lines().nth(number.parse::<usize>().unwrap() - 1).unwrap();
                    prop_assert!(line.trim_start().starts_with("nameserver"), "{line:?}");
                }
            }
        }
    }
}
