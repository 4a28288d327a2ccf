//! RDMA devices of software RoCE.

use linux::RdmaLink;
use linux::netlink::{RdmaDeviceInfo, RdmaDevices};
use rustix::io::Errno;

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::inside;

impl Object for &RdmaLink {
    fn dev(&self) -> Option<&linux::IfName> {
        Some(&self.link)
    }

    fn look(&self, opened: &OpenNetns, _: &Listing, index: u32) -> Result<StepState, StepError> {
        let Some((devices, found)) = find(self, opened)? else { return Ok(StepState::Absent) };
        let link = devices.link_of(&found)?;
        Ok(StepState::of(link == Some(index), || format!("{} on another link", self.subject())))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.rdma()?.add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        match find(self, opened)? {
            Some((devices, found)) => Ok(devices.remove(&found)?),
            None => Ok(()),
        }
    }

    fn is_listed(&self) -> bool {
        false
    }

    /// A machine has a name once, whatever the link.
    fn slot(&self) -> String {
        self.removal(&Place::Host)
    }

    fn subject(&self) -> String {
        format!("RDMA device {}", self.name)
    }

    fn command(&self, place: &Place) -> String {
        inside(place, &format!("rdma link add {} type rxe netdev {}", self.name, self.link))
    }

    fn removal(&self, place: &Place) -> String {
        inside(place, &format!("rdma link delete {}", self.name))
    }
}

/// The device of that name. A kernel without RDMA, or with its modules unloaded, has none.
fn find<'o>(
    wanted: &RdmaLink,
    opened: &'o OpenNetns,
) -> Result<Option<(&'o RdmaDevices, RdmaDeviceInfo)>, StepError> {
    let devices = match opened.rdma() {
        Err(error) if error.is(Errno::PROTONOSUPPORT.raw_os_error()) => return Ok(None),
        devices => devices?,
    };
    Ok(devices.find(&wanted.name)?.map(|found| (devices, found)))
}
