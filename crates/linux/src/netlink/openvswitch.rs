//! Datapaths of Open vSwitch: the kernel's part of it, which looks packets up in a table of flows and hands those that
//! are in none to the daemon.
//!
//! The daemon makes datapaths and their ports. Here they are tried, found, and taken away when no daemon
//! does it any more.
//!
//! Source: include/uapi/linux/openvswitch.h.

use std::io;

use super::{Generic, MessageBody};
use crate::error::Attempt;
use crate::{IfName, Netns, Result};

/// The requests of both families.
const NEW: u8 = 1;
const DEL: u8 = 2;
const GET: u8 = 3;
/// Attributes of a datapath.
const DATAPATH_NAME: u16 = 1;
const DATAPATH_UPCALL: u16 = 2;
/// Attributes of a port.
const PORT_TYPE: u16 = 2;
const PORT_NAME: u16 = 3;
const PORT_OPTIONS: u16 = 4;
const PORT_UPCALL: u16 = 5;
/// The kind of a port that is a tunnel of GENEVE, and an attribute of its options.
const TYPE_GENEVE: u32 = 5;
const OPTION_PORT: u16 = 1;

/// The datapaths of a namespace.
#[derive(Debug)]
pub struct OvsDatapaths {
    datapaths: Generic,
    ports: Generic,
    place: String,
}

impl OvsDatapaths {
    /// Those of a namespace. The kernel loads its module; `ENOENT` if it has none.
    pub fn open_in(netns: &Netns) -> Result<OvsDatapaths> {
        let (datapaths, ports) =
            netns.run(|| Ok((Generic::open("ovs_datapath")?, Generic::open("ovs_vport")?)))??;
        Ok(OvsDatapaths { datapaths, ports, place: netns.describe() })
    }

    /// Whether there is a datapath of this name.
    pub fn exists(&self, name: &IfName) -> Result<bool> {
        match self.datapaths.call(GET, &named(DATAPATH_NAME, name)) {
            Ok(_) => Ok(true),
            Err(error) if is_no_such(&error) => Ok(false),
            Err(error) => Err(error).attempt(|| format!("look for the datapath {name} in {}", self.place)),
        }
    }

    /// Deletes a datapath. Links that were its ports stay; those that it made itself go with it. None is no error.
    pub fn datapath_del(&self, name: &IfName) -> Result<()> {
        match self.datapaths.call(DEL, &named(DATAPATH_NAME, name)) {
            Err(error) if !is_no_such(&error) => {
                Err(error).attempt(|| format!("delete the datapath {name} in {}", self.place))
            }
            _ => Ok(()),
        }
    }

    /// Takes a port away from its datapath. None is no error.
    pub fn port_del(&self, name: &IfName) -> Result<()> {
        match self.ports.call(DEL, &named(PORT_NAME, name)) {
            Err(error) if !is_no_such(&error) => {
                Err(error).attempt(|| format!("delete the port {name} of a datapath in {}", self.place))
            }
            _ => Ok(()),
        }
    }

    /// Makes a datapath and deletes it.
    pub(crate) fn try_datapath(&self) -> Result<()> {
        self.with_one(|| Ok(()))
    }

    /// Makes a datapath with a tunnel of GENEVE, and deletes both.
    pub(crate) fn try_geneve(&self) -> Result<()> {
        self.with_one(|| {
            let tunnel = IfName::new("hggeneve").expect("it is a valid name");
            let mut options = MessageBody::default();
            options.put(OPTION_PORT, &6081u16.to_ne_bytes());
            let datapath = self.datapaths.call(GET, &named(DATAPATH_NAME, &probe()))?;
            let index = datapath.first().and_then(|answer| answer.first_chunk::<4>()).copied();
            let mut port = MessageBody::after(index.unwrap_or_default());
            port.put_u32(PORT_TYPE, TYPE_GENEVE);
            put_name(&mut port, PORT_NAME, &tunnel);
            port.nest(PORT_OPTIONS, &options);
            port.put_u32(PORT_UPCALL, 0);
            self.ports.call(NEW, &port).map(drop)
        })
    }

    /// Deleted with its ports, whatever `inside` says.
    fn with_one(&self, inside: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let mut datapath = named(DATAPATH_NAME, &probe());
        datapath.put_u32(DATAPATH_UPCALL, 0);
        let attempted = || format!("make a datapath in {}", self.place);
        self.datapaths.call(NEW, &datapath).attempt(attempted)?;
        let tried = inside().attempt(attempted);
        self.datapath_del(&probe()).and(tried)
    }
}

/// The datapath that is tried.
fn probe() -> IfName {
    IfName::new("hgprobe").expect("it is a valid name")
}

/// A request about something of a name. Its header is of `struct ovs_header`, the number of a datapath; 0 for any.
fn named(attribute: u16, name: &IfName) -> MessageBody {
    let mut request = MessageBody::after([0; 4]);
    put_name(&mut request, attribute, name);
    request
}

fn put_name(request: &mut MessageBody, attribute: u16, name: &IfName) {
    request.put(attribute, &[name.as_str().as_bytes(), &[0]].concat());
}

fn is_no_such(error: &io::Error) -> bool {
    [libc::ENODEV, libc::ENOENT].map(Some).contains(&error.raw_os_error())
}
