//! The names of flannel's annotations of a node, and what this node's are to be.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::tunnel;
use crate::lease::Announcement;

/// What the keys of flannel's annotations begin with by default (`--kube-annotation-prefix`).
pub const PREFIX: &str = "flannel.alpha.coreos.com";

/// Annotations by their full names.
pub(super) type Annotations = BTreeMap<String, String>;
/// What is to be changed of them: a new text, or that it goes.
pub(super) type Changes = BTreeMap<String, Option<String>>;

/// The full names, for one prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    before: String,
    pub(super) managed: String,
    pub(super) backend_type: String,
    pub(super) v4: OfFamily,
    pub(super) v6: OfFamily,
}

/// Those of a family of addresses.
#[derive(Debug, Clone)]
pub(super) struct OfFamily {
    pub(super) data: String,
    pub(super) public: String,
    /// What an administrator wants announced as the address, because the node does not know it: behind a NAT.
    pub(super) overwrite: String,
}

impl Names {
    /// As flannel does it, a prefix without a slash is a whole domain, and one with a slash ends with a hyphen.
    pub(super) fn new(prefix: &str) -> Names {
        let mut before = prefix.to_owned();
        if !before.contains('/') {
            before.push('/');
        }
        if !before.ends_with(['/', '-']) {
            before.push('-');
        }
        let name = |short: &str| format!("{before}{short}");
        let family = |data, public| OfFamily {
            data: name(data),
            public: name(public),
            overwrite: format!("{}-overwrite", name(public)),
        };
        Names {
            managed: name("kube-subnet-manager"),
            backend_type: name("backend-type"),
            v4: family("backend-data", "public-ip"),
            v6: family("backend-v6-data", "public-ipv6"),
            before,
        }
    }

    /// Whether an annotation is one of these, so that all others can be forgotten at once.
    pub(super) fn has(&self, name: &str) -> bool {
        name.starts_with(&self.before)
    }
}

/// What is to be changed on this node, so that it announces itself as it wants; nothing if it does so already.
/// The second value is what is wrong with an overwrite; the node's own address is then announced.
pub(super) fn changes(names: &Names, own: &Announcement, found: &Annotations) -> (Changes, Option<String>) {
    let (v4, wrong_v4) = public(&names.v4, own.public.v4, found);
    let (v6, wrong_v6) = public(&names.v6, own.public.v6, found);
    let wanted = [
        (&names.managed, Some("true".to_owned())),
        (&names.backend_type, Some(own.backend.clone())),
        (&names.v4.data, v4.is_some().then(|| tunnel::text(own.data))),
        (&names.v4.public, v4),
        (&names.v6.data, v6.is_some().then(|| tunnel::text(own.data_v6))),
        (&names.v6.public, v6),
    ];
    let differs = |(name, text): &(&String, Option<String>)| found.get(*name) != text.as_ref();
    let changes = wanted.into_iter().filter(differs).map(|(name, text)| (name.clone(), text)).collect();
    (changes, wrong_v4.or(wrong_v6))
}

/// The address to announce. A family without an address of the node's own has none, whatever an overwrite says: nothing
/// would answer there.
fn public<A: FromStr + ToString>(
    names: &OfFamily,
    own: Option<A>,
    found: &Annotations,
) -> (Option<String>, Option<String>) {
    let Some(own) = own else { return (None, None) };
    let own = Some(own.to_string());
    match found.get(&names.overwrite).filter(|text| !text.is_empty()) {
        None => (own, None),
        Some(text) => match text.parse::<A>() {
            Ok(address) => (Some(address.to_string()), None),
            Err(_) => (own, Some(format!("{} is no address of its family: {text:?}", names.overwrite))),
        },
    }
}

#[cfg(test)]
mod tests {
    use datapath::Addresses;
    use linux::Mac;

    use super::*;
    use crate::lease::{TunnelData, VxlanEnd};

    fn own() -> Announcement {
        Announcement {
            public: Addresses { v4: Some([192, 0, 2, 1].into()), v6: None },
            backend: "vxlan".to_owned(),
            data: Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: Mac([2, 0, 0, 0, 0, 1]) })),
            data_v6: None,
        }
    }

    /// What is found after the changes were made.
    fn after(found: &Annotations, changes: Changes) -> Annotations {
        let mut found = found.clone();
        for (name, text) in changes {
            match text {
                Some(text) => drop(found.insert(name, text)),
                None => drop(found.remove(&name)),
            }
        }
        found
    }

    #[test]
    fn a_second_look_finds_nothing_to_change() {
        let names = Names::new(PREFIX);
        let first = after(&Annotations::new(), changes(&names, &own(), &Annotations::new()).0);
        let expected = [
            ("backend-data", r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}"#),
            ("backend-type", "vxlan"),
            ("kube-subnet-manager", "true"),
            ("public-ip", "192.0.2.1"),
        ];
        let expected = expected.map(|(name, text)| (format!("{PREFIX}/{name}"), text.to_owned()));
        assert_eq!(first, Annotations::from(expected));
        assert_eq!(changes(&names, &own(), &first), (Changes::new(), None));
    }

    #[test]
    fn a_family_without_an_address_is_taken_back() {
        let names = Names::new(PREFIX);
        let both = Announcement { public: Addresses::both([192, 0, 2, 1].into(), 1.into()), ..own() };
        let found = after(&Annotations::new(), changes(&names, &both, &Annotations::new()).0);
        assert_eq!(found[&names.v6.data], "null");
        let gone = [(names.v6.data.clone(), None), (names.v6.public.clone(), None)];
        assert_eq!(changes(&names, &own(), &found).0, Changes::from(gone));
    }

    #[test]
    fn an_administrators_address_wins() {
        let names = Names::new(PREFIX);
        let overwrite = |text: &str| Annotations::from([(names.v4.overwrite.clone(), text.to_owned())]);
        let announced = |text: &str| {
            let (changes, wrong) = changes(&names, &own(), &overwrite(text));
            (changes[&names.v4.public].clone().unwrap(), wrong.is_some())
        };
        assert_eq!(announced("198.51.100.7"), ("198.51.100.7".to_owned(), false));
        assert_eq!(announced("gateway.example"), ("192.0.2.1".to_owned(), true));
        assert_eq!(announced(""), ("192.0.2.1".to_owned(), false));
    }

    #[test]
    fn prefixes_end_as_flannels() {
        let managed = |prefix| Names::new(prefix).managed;
        assert_eq!(managed("example.org"), "example.org/kube-subnet-manager");
        assert_eq!(managed("example.org/a"), "example.org/a-kube-subnet-manager");
        assert_eq!(managed("example.org/a-"), "example.org/a-kube-subnet-manager");
    }
}
