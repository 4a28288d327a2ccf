//! The open kernel: one namespace, one netlink socket and one /sys for each place, opened when first needed.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use bpf::Unpinned;
use linux::ethtool::Ethtool;
use linux::netlink::{LinkInfo, Netlink, Nftables, RdmaDevices, WireGuard, Xfrm};
use linux::sysfs::{Elsewhere, NetSysfs};
use linux::{IfName, Netns, NetnsName, netns};

use crate::error::StepError;
use crate::owner::Owner;
use crate::wireguard_lists::WireGuardLists;
use crate::{Fault, Place};

/// Where the claims of this machine are.
const CLAIMS: &str = "/run/hostgap/claims";

/// The places of a plan as open descriptors. The host's namespace is that of the thread that made this.
pub struct Kernel {
    host: Netns,
    open: BTreeMap<Place, OpenNetns>,
    pub(crate) fault: Fault,
    /// The directory of claims.
    pub(crate) claims: PathBuf,
    /// The step that is being applied.
    pub(crate) owner: Option<Owner>,
    /// See [`Kernel::keeping_announced_routes`].
    keeps_announced_routes: bool,
    /// Bpf links that undo has unpinned. They end after its last step: by then most of their network links are deleted,
    /// and to end them waits for nothing.
    pub(crate) unpinned: Vec<Unpinned>,
}

/// A place with its open descriptors.
pub(crate) struct OpenNetns {
    pub(crate) netns: Netns,
    pub(crate) netlink: Netlink,
    /// The kernel's number of the namespace; unlike an inode, none is given twice during one boot.
    pub(crate) cookie: u64,
    /// See [`Kernel::keeping_announced_routes`].
    pub(crate) keeps_announced_routes: bool,
    /// What the run over a plan or a journal has listed of its WireGuard devices.
    pub(crate) devices: WireGuardLists,
    sysfs: OnceCell<NetSysfs>,
    ethtool: OnceCell<Ethtool>,
    nftables: OnceCell<Nftables>,
    wireguard: OnceCell<WireGuard>,
    xfrm: OnceCell<Xfrm>,
    rdma: OnceCell<RdmaDevices>,
}

impl Kernel {
    /// Holds the calling thread's namespace as [`Place::Host`].
    pub fn new() -> Result<Kernel, linux::Error> {
        Ok(Kernel {
            host: Netns::current()?,
            open: BTreeMap::new(),
            fault: Fault::None,
            claims: PathBuf::from(CLAIMS),
            owner: None,
            keeps_announced_routes: false,
            unpinned: Vec::new(),
        })
    }

    /// Makes a later apply or undo fail; see [`Fault`].
    pub fn inject(&mut self, fault: Fault) {
        self.fault = fault;
    }

    /// Keeps in another directory than `/run/hostgap/claims` which units share what.
    #[must_use]
    pub fn with_claims(self, directory: impl Into<PathBuf>) -> Kernel {
        Kernel { claims: directory.into(), ..self }
    }

    /// Refuses to let a node forward IPv6 where that would take from it a route that a router has announced: undo does
    /// not bring such a route back. For what stays, and not for a race between machines, which lasts minutes.
    #[must_use]
    pub fn keeping_announced_routes(self) -> Kernel {
        Kernel { keeps_announced_routes: true, ..self }
    }

    /// A link of a place as it is now, by the socket that a plan was applied with.
    ///
    /// # Errors
    /// There is no such place, or the kernel does not answer.
    pub fn link(&mut self, place: &Place, name: &IfName) -> Result<Option<LinkInfo>, linux::Error> {
        self.at(place)?.netlink.link(name)
    }

    /// The namespace of a place; an error if it does not exist.
    pub(crate) fn at(&mut self, place: &Place) -> Result<&OpenNetns, linux::Error> {
        match self.open.entry(place.clone()) {
            Entry::Occupied(opened) => Ok(opened.into_mut()),
            Entry::Vacant(vacant) => {
                let opened = OpenNetns::open(&self.host, place, self.keeps_announced_routes)?;
                Ok(vacant.insert(opened))
            }
        }
    }

    /// As [`Kernel::at`]; `None` if there is no such namespace any more.
    pub(crate) fn find(&mut self, place: &Place) -> Result<Option<&OpenNetns>, linux::Error> {
        if matches!(place, Place::Netns(name) if !netns::exists(name)) {
            return Ok(None);
        }
        match self.at(place) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if netns::is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a place leads to the namespace that had this cookie when the step was done; false if that is gone.
    pub(crate) fn is_still(&mut self, place: &Place, cookie: u64) -> Result<bool, StepError> {
        match place {
            Place::Netns(_) | Place::Path(_) => {
                Ok(self.find(place)?.is_some_and(|opened| opened.cookie == cookie))
            }
            Place::Host if self.at(place)?.cookie == cookie => Ok(true),
            Place::Host => {
                let why = "this process is in another network namespace than the one that wrote the journal; \
                           run undo from there";
                Err(StepError::Refused { why: why.to_owned() })
            }
        }
    }

    /// Lets go of a namespace, which lives as long as a process holds it.
    pub(crate) fn forget(&mut self, name: &NetnsName) {
        self.open.remove(&Place::Netns(name.clone()));
    }

    /// Begins a run over the steps of a plan: what an earlier one has listed may have changed.
    pub(crate) fn begin_run(&mut self) {
        for opened in self.open.values_mut() {
            opened.devices = WireGuardLists::default();
        }
    }

    /// Lets go of all namespaces but the host's: names may lead to other ones meanwhile.
    pub(crate) fn forget_all(&mut self) {
        self.open.clear();
    }
}

impl OpenNetns {
    fn open(host: &Netns, place: &Place, keeps_announced_routes: bool) -> Result<OpenNetns, linux::Error> {
        let netns = match place {
            Place::Host => host.try_clone()?,
            Place::Netns(name) => Netns::open(name)?,
            Place::Path(path) => Netns::open_path(path)?,
        };
        let netlink = Netlink::open_in(&netns)?;
        let cookie = netlink.netns_cookie()?;
        let (sysfs, ethtool) = (OnceCell::new(), OnceCell::new());
        let (nftables, wireguard) = (OnceCell::new(), OnceCell::new());
        let (xfrm, rdma) = (OnceCell::new(), OnceCell::new());
        let devices = WireGuardLists::default();
        Ok(OpenNetns {
            netns,
            netlink,
            cookie,
            keeps_announced_routes,
            devices,
            sysfs,
            ethtool,
            nftables,
            wireguard,
            xfrm,
            rdma,
        })
    }

    /// The namespace's own /sys; few steps need it.
    pub(crate) fn sysfs(&self) -> Result<&NetSysfs, linux::Error> {
        match self.sysfs.get() {
            Some(sysfs) => Ok(sysfs),
            None => {
                let sysfs = NetSysfs::open(&self.netns)?;
                Ok(self.sysfs.get_or_init(|| sysfs))
            }
        }
    }

    /// The namespace's cards; few steps need them.
    pub(crate) fn ethtool(&self) -> Result<&Ethtool, linux::Error> {
        match self.ethtool.get() {
            Some(ethtool) => Ok(ethtool),
            None => {
                let ethtool = Ethtool::open_in(&self.netns)?;
                Ok(self.ethtool.get_or_init(|| ethtool))
            }
        }
    }

    /// The namespace's rules, to be asked whether they have changed.
    pub(crate) fn nftables(&self) -> Result<&Nftables, linux::Error> {
        match self.nftables.get() {
            Some(nftables) => Ok(nftables),
            None => {
                let nftables = Nftables::open_in(&self.netns)?;
                Ok(self.nftables.get_or_init(|| nftables))
            }
        }
    }

    /// The namespace's WireGuard devices; few steps need them.
    pub(crate) fn wireguard(&self) -> Result<&WireGuard, linux::Error> {
        match self.wireguard.get() {
            Some(wireguard) => Ok(wireguard),
            None => {
                let wireguard = WireGuard::open_in(&self.netns)?;
                Ok(self.wireguard.get_or_init(|| wireguard))
            }
        }
    }

    /// The namespace's IPsec; few steps need it.
    pub(crate) fn xfrm(&self) -> Result<&Xfrm, linux::Error> {
        match self.xfrm.get() {
            Some(xfrm) => Ok(xfrm),
            None => {
                let xfrm = Xfrm::open_in(&self.netns)?;
                Ok(self.xfrm.get_or_init(|| xfrm))
            }
        }
    }

    /// The RDMA devices that the namespace sees; few steps need them.
    pub(crate) fn rdma(&self) -> Result<&RdmaDevices, linux::Error> {
        match self.rdma.get() {
            Some(rdma) => Ok(rdma),
            None => {
                let rdma = RdmaDevices::open_in(&self.netns)?;
                Ok(self.rdma.get_or_init(|| rdma))
            }
        }
    }
}

/// What else has a device that has no link here, as a phrase. `None` if nothing has it, or its link is in a namespace
/// that cannot be found: mostly one that is about to end, after which the device comes back.
pub(crate) fn device_taken(here: &OpenNetns, device: &str) -> Result<Option<String>, StepError> {
    Ok(match here.sysfs()?.elsewhere(device) {
        None => None,
        Some(Elsewhere::Driver(driver)) => {
            Some(format!("driver {driver} has device {device}, for a virtual machine"))
        }
        Some(Elsewhere::Netns) => {
            let holder = linux::netns_of_device(device)?;
            holder.map(|holder| format!("the link of device {device} is in {}", holder.describe()))
        }
    })
}
