//! RDMA devices, those of software among them: listed, made of a link, taken away.
//!
//! A device is the machine's. Whether other network namespaces see it depends on the mode that the machine has: shared,
//! all do; exclusive, a device is in one namespace, as a link is.
//!
//! Source: include/uapi/rdma/rdma_netlink.h, drivers/infiniband/core/nldev.c.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_RDMA;

use super::generic::{Attributes, MessageBody, Packet};
use super::socket::Socket;
use crate::error::Attempt;
use crate::rdma::{RdmaLink, RdmaName};
use crate::{Error, Netns, Result};

/// `RDMA_NL_NLDEV`, above the ten bits of the command (`RDMA_NL_GET_TYPE`).
const NLDEV: u16 = 5 << 10;
/// Commands (`RDMA_NLDEV_CMD_…`).
const GET: u16 = 1;
const SET: u16 = 2;
const NEW_LINK: u16 = 3;
const DELETE_LINK: u16 = 4;
const GET_PORT: u16 = 5;
const GET_SYSTEM: u16 = 6;
const SET_SYSTEM: u16 = 7;
/// Attributes (`RDMA_NLDEV_ATTR_…`).
const DEVICE_INDEX: u16 = 1;
const DEVICE_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const LINK_INDEX: u16 = 50;
const LINK_NAME: u16 = 51;
const LINK_TYPE: u16 = 65;
const NETNS_MODE: u16 = 66;
const NETNS_FD: u16 = 68;

/// The kind of devices that are made here.
const SOFTWARE_ROCE: &str = "rxe";
/// How long a name is waited for that nothing seems to have: that of a device whose link has just gone, or of
/// one in another namespace.
const NAME_WAIT: Duration = Duration::from_secs(5);
/// Ports of a device are counted from 1, and those that software makes have one.
const FIRST_PORT: u32 = 1;

/// A socket for the RDMA devices that a namespace sees.
#[derive(Debug)]
pub struct RdmaDevices {
    /// One exchange at a time: answers of two would mix.
    socket: Mutex<Socket>,
    place: String,
}

/// An RDMA device as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDeviceInfo {
    /// Its number, which no other device of the machine has had.
    pub index: u32,
    /// The name of the device, which can be changed.
    pub name: String,
}

/// Which network namespaces see a machine's RDMA devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaNetnsMode {
    /// All network namespaces see all devices.
    Shared,
    /// A device is in one network namespace.
    Exclusive,
}

impl RdmaDevices {
    /// Those that a namespace sees. `EPROTONOSUPPORT` if the kernel has no RDMA, or its module `ib_core` is not loaded:
    /// nothing loads it by itself.
    pub fn open_in(netns: &Netns) -> Result<RdmaDevices> {
        let place = netns.describe();
        let socket = netns.run(|| Socket::open(NETLINK_RDMA))?;
        let socket = socket.attempt(|| format!("ask for RDMA devices in {place}"))?;
        Ok(RdmaDevices { socket: Mutex::new(socket), place })
    }

    /// Every device that the namespace sees, in the order in which they were made.
    pub fn list(&self) -> Result<Vec<RdmaDeviceInfo>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        let answers = socket.dump(&packet(GET, &MessageBody::default()));
        let answers = answers.attempt(|| format!("list RDMA devices in {}", self.place))?;
        let mut devices: Vec<_> = answers.iter().filter_map(|answer| device(&answer.bytes)).collect();
        devices.sort_by_key(|device| device.index);
        Ok(devices)
    }

    /// A device by its name; `None` if there is none.
    pub fn find(&self, name: &RdmaName) -> Result<Option<RdmaDeviceInfo>> {
        Ok(self.list()?.into_iter().find(|device| device.name == name.as_str()))
    }

    /// The index of the link by which a device's packets go. `None` if it has none, or if that is in another namespace.
    pub fn link_of(&self, device: &RdmaDeviceInfo) -> Result<Option<u32>> {
        let mut question = of(device);
        question.put_u32(PORT_INDEX, FIRST_PORT);
        let answers = self.call(GET_PORT, &question);
        let answers = answers.attempt(|| format!("ask for the port of {}", self.whose(&device.name)))?;
        let answer = answers.first().map(|answer| Attributes::of(&answer.bytes));
        Ok(answer.and_then(|answer| answer.number(LINK_INDEX)))
    }

    /// Makes a device of software RoCE on a link of the namespace. The kernel loads `rdma_rxe`. `EEXIST` if the link
    /// has one or another device has the name; `EINVAL` or `ENODEV` if there is no such link or no such module.
    ///
    /// A device whose link is deleted goes later, on a work queue, and its name is taken until then although `list` no
    /// longer shows it. Such a name is waited for. Source: `ib_unregister_device_queued`, `disable_device` and
    /// `assign_name` (`ENFILE`) of drivers/infiniband/core/device.c.
    pub fn add(&self, wanted: &RdmaLink) -> Result<()> {
        let mut request = MessageBody::default();
        put_text(&mut request, DEVICE_NAME, wanted.name.as_str());
        put_text(&mut request, LINK_TYPE, SOFTWARE_ROCE);
        put_text(&mut request, LINK_NAME, wanted.link.as_str());
        let deadline = Instant::now() + NAME_WAIT;
        let made = loop {
            match self.call(NEW_LINK, &request) {
                Err(error) if error.raw_os_error() == Some(libc::ENFILE) => {
                    if self.find(&wanted.name)?.is_some() || Instant::now() >= deadline {
                        break Err(io::Error::from_raw_os_error(libc::EEXIST));
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                answer => break answer.map(drop),
            }
        };
        made.attempt(|| format!("make {} on link {}", self.whose(wanted.name.as_str()), wanted.link))
    }

    /// Takes away a device that software has made. `EINVAL` if it is a card's.
    pub fn remove(&self, device: &RdmaDeviceInfo) -> Result<()> {
        let removed = self.call(DELETE_LINK, &of(device)).map(drop);
        removed.attempt(|| format!("delete {}", self.whose(&device.name)))
    }

    /// Which namespaces see the machine's devices.
    pub fn mode(&self) -> Result<RdmaNetnsMode> {
        let attempted = || format!("ask for the mode of RDMA devices in {}", self.place);
        let answers = self.call(GET_SYSTEM, &MessageBody::default()).attempt(attempted)?;
        let answer = answers.first().map(|answer| Attributes::of(&answer.bytes));
        match answer.and_then(|answer| answer.number(NETNS_MODE)) {
            Some(0) => Ok(RdmaNetnsMode::Exclusive),
            Some(_) => Ok(RdmaNetnsMode::Shared),
            None => Err(Error::invalid(attempted(), "the answer has no mode")),
        }
    }

    /// Sets which namespaces see the machine's devices. `EBUSY` while there is a network namespace
    /// beside the machine's own.
    pub fn set_mode(&self, mode: RdmaNetnsMode) -> Result<()> {
        let mut request = MessageBody::default();
        request.put(NETNS_MODE, &[u8::from(mode == RdmaNetnsMode::Shared)]);
        let set = self.call(SET_SYSTEM, &request).map(drop);
        set.attempt(|| format!("set the mode of RDMA devices in {}", self.place))
    }

    /// Moves a device to another namespace. `EOPNOTSUPP` in shared mode, and if its driver cannot.
    pub fn move_to(&self, device: &RdmaDeviceInfo, netns: &Netns) -> Result<()> {
        let mut request = of(device);
        let descriptor = netns.as_fd().as_raw_fd();
        request.put_u32(NETNS_FD, descriptor.cast_unsigned());
        let moved = self.call(SET, &request).map(drop);
        moved.attempt(|| format!("move {} to {}", self.whose(&device.name), netns.describe()))
    }

    fn call(&self, command: u16, request: &MessageBody) -> io::Result<Vec<Packet>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        socket.exchange(packet(command, request), NLM_F_ACK)
    }

    fn whose(&self, name: &str) -> String {
        format!("RDMA device {name} in {}", self.place)
    }
}

fn packet(command: u16, request: &MessageBody) -> Packet {
    Packet { family: NLDEV | command, bytes: request.bytes().to_vec() }
}

fn of(device: &RdmaDeviceInfo) -> MessageBody {
    let mut request = MessageBody::default();
    request.put_u32(DEVICE_INDEX, device.index);
    request
}

fn put_text(request: &mut MessageBody, attribute: u16, text: &str) {
    request.put(attribute, &[text.as_bytes(), &[0]].concat());
}

fn device(bytes: &[u8]) -> Option<RdmaDeviceInfo> {
    let attributes = Attributes::of(bytes);
    let name = attributes.get(DEVICE_NAME)?.split(|byte| *byte == 0).next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    Some(RdmaDeviceInfo { index: attributes.number(DEVICE_INDEX)?, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_from_its_attributes() {
        let mut answer = MessageBody::default();
        answer.put_u32(DEVICE_INDEX, 3);
        put_text(&mut answer, DEVICE_NAME, "rxe0");
        let found = device(answer.bytes());
        assert_eq!(found, Some(RdmaDeviceInfo { index: 3, name: "rxe0".to_owned() }));
        assert_eq!(device(&answer.bytes()[..8]), None);
        assert_eq!(device(&[]), None);
    }

    #[test]
    fn a_command_is_below_its_client() {
        assert_eq!(packet(NEW_LINK, &MessageBody::default()).family, 0x1403);
    }
}
