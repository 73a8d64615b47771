//! A tonic client behind the layer.
//!
//! gRPC calls are paced and have their `grpc-timeout` as a deadline. They are not retried, because
//! tonic's bodies are streams.
//!
//! ```sh
//! cargo run -p tidegate-client --example grpc_client -- http://127.0.0.1:8080 100
//! ```

use std::error::Error;
use std::time::Duration;

use http::uri::PathAndQuery;
use tidegate_client::{ClientLayer, ClientStats};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower::Layer as _;

type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Empty messages, in place of generated code.
#[derive(Clone, Copy, Default)]
struct EmptyCodec;

impl Codec for EmptyCodec {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for EmptyCodec {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for EmptyCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}

/// Calls a method of the server at `url` this many times. Returns how many calls it refused, too.
pub async fn run(url: &str, calls: usize) -> ExampleResult<(ClientStats, usize)> {
    let channel = Channel::from_shared(url.to_owned())?.connect_lazy();
    let channel = ClientLayer::new().layer(channel);
    // With generated code: `GreeterClient::new(channel.clone())`.
    let mut client = Grpc::new(channel.clone());
    let mut refused = 0;
    for _ in 0..calls {
        client.ready().await?;
        let mut request = Request::new(());
        request.set_timeout(Duration::from_secs(10));
        let path = PathAndQuery::from_static("/example.Greeter/SayHello");
        match client.unary(request, path, EmptyCodec).await {
            Ok(_) => {}
            Err(status) if status.code() == Code::ResourceExhausted => refused += 1,
            Err(status) => return Err(status.into()),
        }
    }
    Ok((channel.stats(), refused))
}

#[tokio::main]
async fn main() -> ExampleResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(calls)) = (args.next(), args.next()) else {
        return Err("usage: grpc_client URL CALLS".into());
    };
    let (stats, refused) = run(&url, calls.parse()?).await?;
    println!("{} sent, {} paced, {refused} refused", stats.sent, stats.paced);
    Ok(())
}
