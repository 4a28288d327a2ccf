//! The two sides of a race: the client's and the server's.

use datapath::SocketRole;

/// One thing of the client's side and one of the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByRole<T> {
    /// The thing of the client's side.
    pub client: T,
    /// The thing of the server's side.
    pub server: T,
}

impl<T> ByRole<T> {
    /// Makes the thing of each side, the client's first.
    pub fn make(mut of: impl FnMut(SocketRole) -> T) -> ByRole<T> {
        let client = of(SocketRole::Client);
        ByRole { client, server: of(SocketRole::Server) }
    }

    /// The thing of a side.
    pub fn of(&self, part: SocketRole) -> &T {
        match part {
            SocketRole::Client => &self.client,
            SocketRole::Server => &self.server,
        }
    }

    /// The same with references, to look at both without moving them.
    pub fn as_ref(&self) -> ByRole<&T> {
        ByRole { client: &self.client, server: &self.server }
    }

    /// The same of both, the client's first.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> ByRole<U> {
        let client = make(self.client);
        ByRole { client, server: make(self.server) }
    }

    /// Each thing with what faces it on the other side, the client's first.
    pub fn facing(self) -> [(T, T); 2]
    where
        T: Copy,
    {
        [(self.client, self.server), (self.server, self.client)]
    }

    /// Both, the client's first.
    pub fn both(self) -> [T; 2] {
        [self.client, self.server]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_comes_first_and_each_faces_the_other() {
        let sides = ByRole::make(|part| format!("{part:?}"));
        assert_eq!(
            (sides.of(SocketRole::Client).as_str(), sides.of(SocketRole::Server).as_str()),
            ("Client", "Server")
        );
        let lengths = sides.as_ref().map(String::len);
        assert_eq!(lengths, ByRole { client: 6, server: 6 });
        assert_eq!(ByRole { client: 1, server: 2 }.facing(), [(1, 2), (2, 1)]);
        assert_eq!(sides.both(), ["Client", "Server"]);
    }
}
