//! Tables of nftables, and elements of their maps and sets.

use linux::nft;

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::inside;

impl Object for &nft::Table {
    /// Its rules are not compared: nft lists them in other words than it takes.
    fn look(&self, opened: &OpenNetns, _: &Listing, _: u32) -> Result<StepState, StepError> {
        Ok(StepState::whether(opened.nftables()?.table_exists(self.family, &self.name)?))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(nft::add(&opened.netns, self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.nftables()?.delete_table(self.family, &self.name)?)
    }

    /// A process that was killed in this step has left an `nft` behind that may yet add the table.
    fn settle(&self, opened: &OpenNetns) -> Result<(), StepError> {
        Ok(nft::settle(&opened.netns)?)
    }

    fn subject(&self) -> String {
        format!("nftables table {} {}", self.family.name(), self.name)
    }

    fn command(&self, place: &Place) -> String {
        inside(place, &format!("nft -f - <<'EOF'\n{}\nEOF", self.to_text().trim_end()))
    }

    fn removal(&self, place: &Place) -> String {
        inside(place, &format!("nft delete table {} {}", self.family.name(), self.name))
    }
}

impl Object for &nft::Element {
    fn look(&self, opened: &OpenNetns, _: &Listing, _: u32) -> Result<StepState, StepError> {
        let Some(found) = opened.nftables()?.find_element(self)? else { return Ok(StepState::Absent) };
        Ok(StepState::of(found == **self, || format!("element {}", found.to_text())))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.nftables()?.add_element(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.nftables()?.delete_element(self)?)
    }

    fn subject(&self) -> String {
        format!("element {} of nftables map {}", self.key_text(), self.place())
    }

    fn command(&self, place: &Place) -> String {
        inside(place, &format!("nft create element {} '{}'", self.place(), self.to_text()))
    }

    fn removal(&self, place: &Place) -> String {
        inside(place, &format!("nft delete element {} '{}'", self.place(), self.key_text()))
    }
}
