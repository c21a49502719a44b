// attnd.

#include "server/devices.h"
#include "server/program.h"

int main(int argc, char** argv) {
  return attnd::server::RunProgram(argc, argv, attnd::server::CreateDevices);
}
