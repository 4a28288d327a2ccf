//! The queueing discipline at the root of a link.

use linux::netlink::QdiscInfo;
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
    /// As the kernel reports it, with its number; `None`: the kernel's own choice, which comes back when another goes.
    Reported(Option<QdiscInfo>),
    /// As a step asks for it: the kernel gives it a number.
    #[serde(skip)]
    Asked(Qdisc),
}

impl Register for SetRootQdisc {
    type Value = Root;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<Root>, StepError> {
        Ok(Some(Root::Reported(at.opened.netlink.root_qdisc(at.link().index)?)))
    }

    fn write(&self, at: &At<'_>, root: &Root) -> Result<(), StepError> {
        let (netlink, index) = (&at.opened.netlink, at.link().index);
        match root {
            Root::Reported(Some(old)) => netlink.restore_root_qdisc(index, old)?,
            Root::Reported(None) => netlink.delete_root_qdisc(index)?,
            Root::Asked(qdisc) => netlink.set_root_qdisc(index, qdisc)?,
        }
        Ok(())
    }

    fn wanted(&self, _: &Root) -> Root {
        Root::Asked(self.qdisc.clone())
    }

    /// The kernel reports options that were not asked for.
    fn is_met(&self, found: &Root) -> bool {
        match found {
            Root::Reported(Some(found)) => found.qdisc().is_some_and(|found| self.qdisc.is_met_by(&found)),
            Root::Reported(None) => false,
            Root::Asked(asked) => self.qdisc == *asked,
        }
    }

    fn subject(&self) -> String {
        format!("the queueing discipline of link {}", self.link)
    }

    fn words(&self, root: &Root) -> String {
        match root {
            Root::Reported(None) => "the kernel's own".to_owned(),
            Root::Reported(Some(found)) => {
                found.qdisc().map_or_else(|| found.kind.clone(), |found| found.to_string())
            }
            Root::Asked(qdisc) => qdisc.to_string(),
        }
    }

    /// With the number by which tc knows it.
    fn phrase(&self, root: &Root) -> String {
        match root {
            Root::Reported(Some(QdiscInfo { kind, major, .. })) => {
                format!("queueing discipline {kind} {major:x}:")
            }
            Root::Reported(None) | Root::Asked(_) => self.words(root),
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
