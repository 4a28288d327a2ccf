//! Where doctor looks: this network namespace, or another one.

use linux::sysfs::NetSysfs;
use linux::{Files, Netns, NetnsName};

use crate::{DoctorError, Snapshot, Taken};

/// A network namespace to look at. CPUs, interrupts and groups are the machine's in each.
#[derive(Debug)]
pub struct Place {
    elsewhere: Option<(Netns, NetSysfs)>,
}

impl Place {
    /// The namespace of the calling thread, with what is mounted at `/sys`.
    pub fn here() -> Place {
        Place { elsewhere: None }
    }

    /// A named namespace, with a sysfs that shows its links.
    ///
    /// # Errors
    /// There is none of that name, or this process may not enter it.
    pub fn netns(name: &NetnsName) -> Result<Place, DoctorError> {
        let netns = Netns::open(name)?;
        let sysfs = NetSysfs::open(&netns)?;
        Ok(Place { elsewhere: Some((netns, sysfs)) })
    }

    /// Looks once: a snapshot, and the texts from which it was made.
    ///
    /// # Errors
    /// The namespace cannot be entered any more.
    pub fn look(&self) -> Result<Taken, DoctorError> {
        let files = Files::kernel().taking_down();
        let Some((netns, sysfs)) = &self.elsewhere else {
            let snapshot = Snapshot::take(&files);
            return Ok((snapshot, files.taken()));
        };
        let files = files.mounted("sys/class/net", sysfs.path().join("class/net"));
        let snapshot = netns.run(|| Snapshot::take(&files))?;
        Ok((snapshot, files.taken()))
    }
}
