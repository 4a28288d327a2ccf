//! The queueing discipline at the root of a link.

use linux::netlink::{ChosenQdisc, QdiscInfo, RootQdisc};
use linux::{IfName, Qdisc};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::show::{Tool, word};

/// Put a queueing discipline at the root of a link, in place of what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRootQdisc {
    /// The name of the link.
    pub link: IfName,
    /// What replaces the discipline at its root.
    pub qdisc: Qdisc,
}

/// What stands at the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Root {
    /// The kernel's own choice, which comes back when another goes. What it would choose by then may be another.
    Chosen { chosen: ChosenQdisc },
    /// As the kernel reports it, with its number; `None`: a choice of the kernel's own that is not known, as in older
    /// journals, or that it has yet to make.
    Reported(Option<QdiscInfo>),
    /// As a step asks for it: the kernel gives it a number.
    #[serde(skip)]
    Wanted(Qdisc),
}

impl Register for SetRootQdisc {
    type Value = Root;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<Root>, StepError> {
        Ok(Some(match at.opened.netlink.root_of(at.link().index)? {
            RootQdisc::Chosen(Some(chosen)) => Root::Chosen { chosen },
            RootQdisc::Chosen(None) => Root::Reported(None),
            RootQdisc::Set(found) => Root::Reported(Some(found)),
        }))
    }

    fn write(&self, at: &At<'_>, root: &Root) -> Result<(), StepError> {
        let (netlink, index) = (&at.opened.netlink, at.link().index);
        match root {
            Root::Reported(Some(old)) => netlink.restore_root_qdisc(index, old)?,
            Root::Reported(None) => netlink.delete_root_qdisc(index)?,
            Root::Chosen { chosen } => netlink.restore_chosen_qdisc(index, chosen)?,
            Root::Wanted(qdisc) => netlink.set_root_qdisc(index, qdisc)?,
        }
        Ok(())
    }

    fn wanted(&self, _: &Root) -> Root {
        Root::Wanted(self.qdisc.clone())
    }

    /// The kernel reports options that were not asked for.
    fn is_met(&self, found: &Root) -> bool {
        match found {
            Root::Reported(Some(found)) => found.qdisc().is_some_and(|found| self.qdisc.is_met_by(&found)),
            Root::Chosen { .. } | Root::Reported(None) => false,
            Root::Wanted(wanted) => self.qdisc == *wanted,
        }
    }

    fn is_same(&self, one: &Root, other: &Root) -> bool {
        match (one, other) {
            (Root::Chosen { chosen: one }, Root::Chosen { chosen: other }) => one.is_same(other),
            (Root::Chosen { .. }, Root::Reported(None)) | (Root::Reported(None), Root::Chosen { .. }) => true,
            (one, other) => one == other,
        }
    }

    fn subject(&self) -> String {
        format!("the queueing discipline of link {}", self.link)
    }

    fn words(&self, root: &Root) -> String {
        match root {
            Root::Chosen { .. } | Root::Reported(None) => "the kernel's own".to_owned(),
            Root::Reported(Some(found)) => {
                found.qdisc().map_or_else(|| found.kind.clone(), |found| found.to_string())
            }
            Root::Wanted(qdisc) => qdisc.to_string(),
        }
    }

    /// With the number by which tc knows it, or what the kernel's own is.
    fn phrase(&self, root: &Root) -> String {
        match root {
            Root::Reported(Some(QdiscInfo { kind, major, .. })) => {
                format!("queueing discipline {kind} {major:x}:")
            }
            Root::Chosen { chosen } => {
                let kind = chosen.queues.first().unwrap_or(&chosen.kind);
                format!("{} ({kind})", self.words(root))
            }
            Root::Reported(None) | Root::Wanted(_) => self.words(root),
        }
    }

    fn command(&self, place: &Place) -> String {
        let (tc, link, qdisc) = (Tool("tc", place), word(&self.link), &self.qdisc);
        let Qdisc::Tbf(tbf) = qdisc else {
            return tc.run(&format!("qdisc replace dev {link} root {qdisc}"));
        };
        let outer = tc.run(&format!("qdisc replace dev {link} root handle 1: tbf{tbf}"));
        let inner = tc.run(&format!("qdisc replace dev {link} parent 1:1 {}", tbf.inner));
        format!("{outer} && {inner}")
    }

    /// What was put there by others is refused where it could not be put back.
    fn refusal(&self, _: &At<'_>, was: &Root) -> Result<Option<String>, StepError> {
        let Root::Reported(Some(old)) = was else { return Ok(None) };
        let (link, phrase) = (&self.link, self.phrase(was));
        Ok(old.irretrievable().map(|why| {
            format!(
                "link {link} has {phrase} at its root, which could not be put back: {why}; \
                 remove it first (tc qdisc del dev {link} root)"
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Journals had `null` for the kernel's own choice before they said what it was.
    #[test]
    fn what_older_journals_hold_is_read() {
        let read = |json: &str| serde_json::from_str::<Root>(json).unwrap();
        assert_eq!(read("null"), Root::Reported(None));
        let set = read(r#"{"kind":"pfifo","major":7,"options":[33,0,0,0],"branched":false}"#);
        assert!(matches!(&set, Root::Reported(Some(QdiscInfo { major: 7, .. }))), "{set:?}");
        let chosen = ChosenQdisc { kind: "mq".to_owned(), queues: vec!["fq".to_owned(); 2] };
        for root in [set, Root::Reported(None), Root::Chosen { chosen }] {
            assert_eq!(read(&serde_json::to_string(&root).unwrap()), root);
        }
    }
}
