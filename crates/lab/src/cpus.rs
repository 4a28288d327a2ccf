//! Which CPUs each node gets.

use linux::CpuSet;

/// The CPUs of the two nodes. A node pays on its own CPUs for its application and for its receive path, as a machine
/// of its own would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCpus {
    /// CPUs of the client's node.
    pub client: CpuSet,
    /// CPUs of the server's node.
    pub server: CpuSet,
}

impl NodeCpus {
    /// Splits the allowed CPUs into two halves; an odd one out stays idle, so that the nodes are equal. On a machine
    /// with one CPU both nodes share it, which the report says.
    pub fn split(allowed: &CpuSet) -> NodeCpus {
        let half = allowed.len() / 2;
        if half == 0 {
            return NodeCpus { client: allowed.clone(), server: allowed.clone() };
        }
        NodeCpus {
            client: allowed.iter().take(half).collect(),
            server: allowed.iter().skip(half).take(half).collect(),
        }
    }

    /// One set a thread of the client: each of its CPUs alone.
    pub fn each_client(&self) -> Vec<CpuSet> {
        self.client.iter().map(|cpu| [cpu].into_iter().collect()).collect()
    }

    /// All CPUs of both nodes.
    pub fn all(&self) -> CpuSet {
        self.client.iter().chain(self.server.iter()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(allowed: &str, client: &str, server: &str) {
        let split = NodeCpus::split(&allowed.parse().unwrap());
        assert_eq!((split.client.to_string().as_str(), split.server.to_string().as_str()), (client, server));
    }

    #[test]
    fn nodes_get_equal_halves() {
        check("0-1", "0", "1");
        check("0-7", "0-3", "4-7");
        check("0-2", "0", "1");
        check("2,5,9,11", "2,5", "9,11");
        check("0", "0", "0");
    }
}
