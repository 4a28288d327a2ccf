//! The network namespace that doctor examines: the current one or another.

use linux::netlink::LinkInfo;
use linux::sysfs::NetSysfs;
use linux::{Files, Netlink, Netns, NetnsName};

use crate::{DoctorError, Snapshot, Taken};

/// A network namespace to examine. CPUs, interrupts and groups belong to the machine and appear in each.
#[derive(Debug)]
pub struct ExaminedNetns {
    netns: Option<Netns>,
    /// Where the mounted one shows another namespace's links.
    sysfs: Option<NetSysfs>,
}

impl ExaminedNetns {
    /// The namespace of the calling thread.
    pub fn here() -> ExaminedNetns {
        // A shell that entered only the network namespace (nsenter --net) still has the sysfs of the old one.
        let elsewhere = shows_other_links(&Files::kernel());
        let own = elsewhere.then(|| Netns::current().and_then(|netns| NetSysfs::open(&netns)));
        ExaminedNetns { netns: None, sysfs: own.and_then(Result::ok) }
    }

    /// A named namespace, with a sysfs that shows its links.
    ///
    /// # Errors
    /// The name does not exist, or this process may not enter the namespace.
    pub fn netns(name: &NetnsName) -> Result<ExaminedNetns, DoctorError> {
        let netns = Netns::open(name)?;
        let sysfs = NetSysfs::open(&netns)?;
        Ok(ExaminedNetns { netns: Some(netns), sysfs: Some(sysfs) })
    }

    /// Takes one snapshot, and keeps the texts from which it was made.
    ///
    /// # Errors
    /// The namespace can no longer be entered.
    pub fn look(&self) -> Result<Taken, DoctorError> {
        let mut files = Files::kernel();
        if let Some(sysfs) = &self.sysfs {
            files = files.mounted("sys/class/net", sysfs.path().join("class/net"));
        }
        let look = move || {
            let strange = shows_other_links(&files);
            // Files of another namespace are not read.
            let files = if strange { files.mounted("sys/class/net", "/nonexistent") } else { files };
            let files = files.taking_down();
            let mut snapshot = Snapshot::take(&files);
            if strange {
                snapshot.unseen.push("links: /sys shows those of another network namespace".to_owned());
            }
            (snapshot, files.taken())
        };
        match &self.netns {
            None => Ok(look()),
            Some(netns) => {
                let (mut snapshot, texts) = netns.run(look)?;
                snapshot.netns = netns.name().cloned();
                Ok((snapshot, texts))
            }
        }
    }
}

/// Whether sysfs has other links than the calling thread's namespace; also where one came or went just now. Two namespaces
/// may have the same names and numbers, so that Ethernet addresses are compared.
fn shows_other_links(files: &Files) -> bool {
    let Ok(links) = Netlink::open().and_then(|netlink| netlink.links()) else { return false };
    let Ok(mut names) = files.list("sys/class/net") else { return false };
    // A file of the bonding driver lies among the links.
    names.retain(|name| name != "bonding_masters");
    let same = |link: &LinkInfo| {
        let address = files.read(&format!("sys/class/net/{}/address", link.name)).ok().flatten();
        let mac = link.mac.map(|mac| mac.to_string());
        address.is_some_and(|address| mac.is_none_or(|mac| mac == address.trim()))
    };
    names.len() != links.len() || !links.iter().all(same)
}
