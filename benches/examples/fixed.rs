use tidegate_bench::contender::*; use tidegate_bench::load::*;
fn main(){ let which=std::env::args().nth(1).unwrap(); let ks=keys(16);
 let c: Box<dyn Contender> = match which.as_str() {"tide"=>Box::new(Tidegate::new(1<<20)),"three"=>Box::new(ThreeRules(Tidegate::new(1<<20))),"gov"=>Box::new(Governor::new()),_=>Box::new(Bare::new())};
 for _ in 0..1000 { for k in &ks { c.decide(k) } } }
