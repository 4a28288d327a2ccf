//! What arrives at a link, given to another one.

use linux::IfName;
use linux::netlink::{IngressFilter, IngressQdisc};

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, word};

/// The kind of the qdisc.
const INGRESS: &str = "ingress";

/// The ingress qdisc of a link, whose only filter gives everything to another link to send.
pub(super) struct Redirect<'s> {
    pub(super) from: &'s IfName,
    pub(super) to: &'s IfName,
}

impl Object for Redirect<'_> {
    fn dev(&self) -> Option<&IfName> {
        Some(self.from)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let Some(found) = opened.netlink.ingress_qdisc(index)? else { return Ok(StepState::Absent) };
        // The kernel leaves 0 in place of a link that is gone.
        let to = listing.index(opened, self.to)?.unwrap_or(0);
        let is_so = to != 0 && found.kind == INGRESS && found.filters == [IngressFilter::Redirect { to }];
        Ok(StepState::of(is_so, || words(&found)))
    }

    fn add(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        let to = opened.netlink.index_of(self.to)?;
        Ok(opened.netlink.ingress_redirect(index, to)?)
    }

    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        Ok(opened.netlink.delete_ingress_qdisc(index)?)
    }

    /// Power may have failed between the qdisc and its filter.
    fn is_begun(&self, opened: &OpenNetns, index: u32) -> Result<bool, StepError> {
        let found = opened.netlink.ingress_qdisc(index)?;
        Ok(found.is_some_and(|found| found.kind == INGRESS && found.filters.is_empty()))
    }

    fn is_listed(&self) -> bool {
        false
    }

    /// A link has one such qdisc.
    fn slot(&self) -> String {
        self.removal(&Place::Host)
    }

    fn subject(&self) -> String {
        format!("the redirect of what arrives at link {}", self.from)
    }

    fn command(&self, place: &Place) -> String {
        let (tc, from, to) = (Tool("tc", place), word(self.from), word(self.to));
        let qdisc = tc.run(&format!("qdisc add dev {from} ingress"));
        let filter = tc.run(&format!(
            "filter add dev {from} ingress protocol all prio 1 u32 match u32 0 0 \
             action mirred egress redirect dev {to}"
        ));
        format!("{qdisc} && {filter}")
    }

    fn removal(&self, place: &Place) -> String {
        Tool("tc", place).run(&format!("qdisc del dev {} ingress", word(self.from)))
    }
}

/// What has the place of the redirect, as a phrase.
fn words(IngressQdisc { kind, filters }: &IngressQdisc) -> String {
    let article = if kind == INGRESS { "an" } else { "a" };
    let what = match filters.as_slice() {
        [] => "without a filter".to_owned(),
        [IngressFilter::Redirect { to: 0 }] => {
            "that drops everything, since the link that got it is gone".to_owned()
        }
        [IngressFilter::Redirect { to }] => format!("that gives everything to the link with index {to}"),
        [IngressFilter::Other(filter)] => format!("with a filter of kind {filter}"),
        several => format!("with {} filters", several.len()),
    };
    format!("{article} {kind} qdisc {what}")
}
