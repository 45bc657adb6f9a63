up up
