//! Which links of a namespace stand on which.

use super::NetSysfs;
use crate::{IfName, Result};

impl NetSysfs {
    /// The links that stand directly on a link: its VLANs and macvlan links, the bridge or bond of which it is a port.
    /// Those in other namespaces do not count. `ENOENT` without the link.
    pub fn above(&self, link: &IfName) -> Result<Vec<IfName>> {
        self.neighbours(link, "upper_")
    }

    /// The links on which a link stands: its parent, or its ports. Those in other namespaces do not count.
    /// `ENOENT` without the link.
    pub fn below(&self, link: &IfName) -> Result<Vec<IfName>> {
        self.neighbours(link, "lower_")
    }

    /// The kernel has a symbolic link for each (`netdev_adjacent_sysfs_add` in net/core/dev.c).
    fn neighbours(&self, link: &IfName, prefix: &str) -> Result<Vec<IfName>> {
        let names = self.directory(&format!("class/net/{link}"))?;
        Ok(names.iter().filter_map(|name| IfName::new(name.strip_prefix(prefix)?).ok()).collect())
    }
}
